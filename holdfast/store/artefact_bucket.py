"""Artefacts in a bucket that speaks S3, which all nodes share.

    PREFIX/ab/SHA256/TIME-RANDOM    a file of the tenant `default`; those of others are below PREFIX/tenant-NAME

An object is never written twice: a file that is stored again becomes another object under its hash, unless the one that is there
is younger than half the grace. So whatever a sweep deletes, older than the grace and named by no row, is nothing that an attempt
has just stored, whichever node it ran on. Credentials come from the environment alone, and no message has them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from holdfast.errors import ArtefactsUnavailable
from holdfast.store.artefacts import (
    GRACE_SECONDS,
    TENANT,
    ArtefactError,
    Artefacts,
    Found,
    P,
    PlaceRefused,
    T,
    sha256_of,
    written_down,
)
from holdfast.store.files import create, create_folder
from holdfast.store.roots import Roots
from holdfast.threads import in_pool
from holdfast.values import Millis

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

REUSED: Final = (
    timedelta(seconds=GRACE_SECONDS) / 2
)  # how old an object may be that a file stored again shares
PART_BYTES: Final = 8 * 1024 * 1024  # of an upload, and of a download: what is in memory of it
PARTS_MAX: Final = 10_000  # that S3 takes of one object
PARTS_AT_ONCE: Final = 4
THREADS: Final = 16  # of this process that wait for the bucket; those of other work never do
REASON_CHARS: Final = 300
OURS: Final = ("endpoint", "region")  # parts of an address
CONNECT: Final = timedelta(seconds=5)
# An upload is tried for a minute, because its tool has done its work. A reader gets the error sooner.
PATIENT: Final[RetryConfig] = {"max_retries": 10, "retry_timeout": timedelta(seconds=60)}
PROMPT: Final[RetryConfig] = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}
# What no retry mends, by the code in the answer of the bucket.
HINTS: Final = {
    "NoSuchBucket": "there is no bucket of that name; make it, or correct the address",
    "AccessDenied": "these credentials may not use it; allow s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject",
    "InvalidAccessKeyId": "the key id is unknown there; correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret is wrong; correct AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the credentials have expired",
    "AuthorizationHeaderMalformed": "the region is wrong; add ?region=NAME to the address",
    "PermanentRedirect": "the bucket is in another region; add ?region=NAME to the address",
}
OF_MACHINES: Final = "//169.254."  # where machines and containers of a cloud ask for their role
NO_CREDENTIALS: Final = (
    "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
)

log = logging.getLogger("holdfast")


class Bucket:
    """An address `s3://bucket/prefix?endpoint=URL&region=NAME`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if "@" in parts.netloc:
            raise PlaceRefused(
                "the address of artefacts must not have credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if not parts.netloc:
            raise PlaceRefused(f"{url!a} names no bucket; write s3://BUCKET/PREFIX")
        if unknown := sorted(given.keys() - set(OURS)):
            raise PlaceRefused(
                f"the address of artefacts has no {unknown[0]!a}; it may have endpoint and region"
            )
        self.name, self.prefix = parts.netloc, parts.path.strip("/")
        self.shown = f"s3://{self.name}" + (f"/{self.prefix}" if self.prefix else "")
        self.endpoint = (
            given.get("endpoint")
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
        )
        region = given.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self.region = region or "us-east-1"
        if self.endpoint and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise PlaceRefused(f"the endpoint of {self.shown} must begin with https:// or http://")

    def store(self, retries: RetryConfig) -> S3Store:
        options: ClientConfig = {"connect_timeout": CONNECT, "timeout": timedelta(minutes=2)}
        if self.endpoint is None:
            return S3Store(self.name, region=self.region, client_options=options, retry_config=retries)
        options["allow_http"] = self.endpoint.startswith("http://")
        endpoint = self.endpoint.rstrip("/")
        return S3Store(
            self.name, endpoint=endpoint, region=self.region, client_options=options, retry_config=retries
        )


class ArtefactBucket(Artefacts):
    is_remote: ClassVar = True

    def __init__(self, bucket: Bucket, staging: Path, roots: Roots | None = None) -> None:
        """`staging` is a folder for one file at a time on its way to the bucket."""
        super().__init__(roots)
        self.bucket, self._staging, self._prefix = bucket, staging, bucket.prefix
        self._patient, self._prompt = bucket.store(PATIENT), bucket.store(PROMPT)
        self._pool = ThreadPoolExecutor(THREADS, "holdfast-bucket")

    def _of(self, tenant: str) -> Artefacts:
        other = ArtefactBucket.__new__(ArtefactBucket)
        other.__dict__.update(self.__dict__)
        other._prefix = f"{self.bucket.prefix}/{TENANT}{tenant}".lstrip("/")
        return other

    async def work(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        return await in_pool(self._pool, lambda: act(*args, **named))

    def check(self) -> None:
        try:
            self._all(f"{self._prefix}/check".lstrip("/"), self._prompt)
        except ArtefactsUnavailable as error:
            if error.is_final:
                raise
            log.warning("%s; steps cannot store files until it can be reached", error)

    # ------------------------------------------------------------------------------------------------ storing

    def put(self, pieces: Iterator[bytes], where: str = "the artefact") -> tuple[str, int]:
        create_folder(self._staging)
        with written_down(self._staging, pieces, where) as (made, sha256, size):
            there = self._newest(sha256, self._patient)
            written_at = datetime.fromtimestamp(made.stat().st_mtime, UTC)  # just now
            if there is None or there["size"] != size or written_at - there["last_modified"] > REUSED:
                self._upload(made, f"{sha256}/{written_at:%Y%m%dT%H%M%SZ}", size)
        return sha256, size

    def _upload(self, made: Path, name: str, size: int) -> None:
        key = f"{self._place(name)}-{secrets.token_hex(4)}"
        part = max(PART_BYTES, -(-size // PARTS_MAX))
        try:
            obstore.put(self._patient, key, file=made, chunk_size=part, max_concurrency=PARTS_AT_ONCE)
        except (BaseError, OSError) as error:
            raise self._away("written", error) from None

    # ------------------------------------------------------------------------------------------------ reading

    def find(self, sha256: str) -> Found | None:
        there = self._newest(sha256, self._prompt)
        if there is None:
            return None
        key, size = there["path"], there["size"]
        return Found(size, None, lambda start, end: self._read(key, start, min(end, size)))

    def fetch(self, uri: str, folder: Callable[[], Path]) -> Path:
        """A copy that is whole and has its hash when it has its name; made once for each folder."""
        sha256 = sha256_of(uri)
        target = folder() / f"artefact-{sha256}"
        if target.exists():
            return target
        found = self.find(sha256)
        if found is None:
            raise ArtefactError(f"the artefact {uri} is not here")
        made, digest = target.with_name(f".{target.name}-{secrets.token_hex(4)}"), hashlib.sha256()
        try:
            with os.fdopen(create(made), "wb") as file:
                for start in range(0, found.size, PART_BYTES):
                    piece = found.read(start, start + PART_BYTES)
                    digest.update(piece)
                    file.write(piece)
            if digest.hexdigest() != sha256:
                raise ArtefactError(f"the artefact {uri} is damaged: its content has another hash")
            os.replace(made, target)
        finally:
            made.unlink(missing_ok=True)
        return target

    def is_worth_noting(self, sha256: str) -> bool:
        return True  # to ask the bucket would make the event loop wait; a row for a file that is not there does no harm

    def _read(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        try:
            return bytes(obstore.get_range(self._prompt, key, start=start, end=end))
        except (BaseError, OSError) as error:
            raise self._away("read", error) from None

    def _newest(self, sha256: str, store: S3Store) -> Any:
        return max(self._all(self._place(sha256), store), key=lambda one: one["last_modified"], default=None)

    def _all(self, prefix: str, store: S3Store) -> list[Any]:
        try:
            return [one for page in obstore.list(store, prefix) for one in page]
        except (BaseError, OSError) as error:
            raise self._away("read", error) from None

    def _place(self, sha256: str) -> str:
        return f"{self._prefix}/{sha256[:2]}/{sha256}".lstrip("/")

    # ------------------------------------------------------------------------------------------------ tidying

    def shelves(self) -> list[str]:
        found = self._folders("")
        tenants = [name for name in found if name.startswith(TENANT)]
        return [
            *(name for name in found if name not in tenants),
            *(one for name in tenants for one in self._folders(name)),
        ]

    def _folders(self, below: str) -> list[str]:
        base = f"{self.bucket.prefix}/{below}".strip("/")
        try:
            found = obstore.list_with_delimiter(self._prompt, base or None)["common_prefixes"]
        except (BaseError, OSError) as error:
            raise self._away("read", error) from None
        return sorted(name.removeprefix(self.bucket.prefix).strip("/") for name in found)

    def sweep(self, shelf: str, named: Collection[str], now: Millis) -> int:
        """Also deletes an older object of a file, once a newer one has been there for a day: no reader needs it any more."""
        before, newer, old = now / 1000 - GRACE_SECONDS, set(), []
        objects = self._all(f"{self.bucket.prefix}/{shelf}".strip("/"), self._prompt)
        for one in sorted(objects, key=lambda one: one["last_modified"], reverse=True):
            sha256 = one["path"].rsplit("/", 2)[-2]
            if one["last_modified"].timestamp() >= before:
                continue
            if sha256 in newer or sha256 not in named:
                old.append(one["path"])
            newer.add(sha256)
        try:
            if old:
                obstore.delete(self._prompt, old)
        except (BaseError, OSError) as error:
            raise self._away("written", error) from None
        return len(old)

    # ------------------------------------------------------------------------------------------------ errors

    def _away(self, done: str, error: Exception) -> ArtefactsUnavailable:
        text = str(error)
        for code, hint in HINTS.items():
            if f"<Code>{code}</Code>" in text:
                return ArtefactsUnavailable(
                    f"{self.bucket.shown} cannot be {done}: {hint} ({code})", is_final=True
                )
        reason = NO_CREDENTIALS if OF_MACHINES in text else text.partition("\n")[0][:REASON_CHARS]
        return ArtefactsUnavailable(f"{self.bucket.shown} cannot be {done} now: {reason}")
