"""Files of runs in a bucket, from the command line: what is refused, checked, copied, and never shown."""

from __future__ import annotations

import hashlib
import signal
import time
from pathlib import Path

import pytest

from holdfast.store.artefact_bucket import ArtefactBucket, Bucket
from holdfast.values import Millis
from tests.cli.conftest import Cli
from tests.s3 import S3, SECRET

FILES = """\
name: files
steps:
  - {id: make, tool: make_file}
"""
TOOLS = """
@tool
def make_file():
    return {"file_refs": [{"inline_b64": "aGVsbG8=", "name": "hello.txt"}]}

@tool
def leak():
    return os.environ["AWS_SECRET_ACCESS_KEY"]
"""
SHA = hashlib.sha256(b"hello").hexdigest()


@pytest.fixture
def bucket(s3: S3, cli: Cli, tmp_path: Path) -> str:
    name = f"cli-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"
    s3.make(name)
    cli.write("files.yaml", FILES)
    (cli.folder / "tools.py").write_text((cli.folder / "tools.py").read_text() + TOOLS)
    return s3.address(name)


def kept(address: str, folder: Path) -> ArtefactBucket:
    return ArtefactBucket(Bucket(address), folder / "looking")


def test_files_of_a_run_are_in_the_bucket_and_not_beside_the_database(cli: Cli, bucket: str) -> None:
    done = cli.run("run", "files.yaml", "--tools", "tools", "--artefacts", bucket)
    assert done.returncode == 0, done.stderr
    assert kept(bucket, cli.folder).find(SHA) is not None
    assert not (cli.folder / "holdfast.db.artefacts").exists()


def test_a_bucket_that_is_missing_is_said_before_anything_runs(cli: Cli, bucket: str, s3: S3) -> None:
    refused = cli.run("run", "files.yaml", "--tools", "tools", "--artefacts", s3.address("not-there"))
    assert refused.returncode == 2
    assert "s3://not-there/files cannot be read: there is no bucket of that name" in refused.stderr


def test_an_address_that_is_no_place_for_files_is_refused(cli: Cli, bucket: str) -> None:
    refused = cli.run("run", "files.yaml", "--tools", "tools", "--artefacts", f"s3://id:{SECRET}@bucket/x")
    assert refused.returncode == 2 and "must not have credentials" in refused.stderr
    assert SECRET not in refused.stdout + refused.stderr


def test_no_tool_can_show_the_secret_of_the_bucket(cli: Cli, bucket: str) -> None:
    cli.write("leak.yaml", "name: leak\nsteps:\n  - {id: s, tool: leak}\n")
    done = cli.run("run", "leak.yaml", "--tools", "tools", "--artefacts", bucket, "--json")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_doctor_asks_the_bucket_for_each_file(cli: Cli, bucket: str) -> None:
    cli.run("run", "files.yaml", "--tools", "tools", "--artefacts", bucket)
    assert cli.run("doctor", "--artefacts", bucket).returncode == 0
    there = kept(bucket, cli.folder)
    there.sweep(SHA[:2], set(), Millis(int((time.time() + 2 * 86_400) * 1000)))
    missing = cli.run("doctor", "--artefacts", bucket)
    assert missing.returncode == 1 and "is not there" in missing.stdout


def test_files_of_a_database_can_be_copied_to_a_bucket(cli: Cli, bucket: str) -> None:
    cli.run("run", "files.yaml", "--tools", "tools")
    copied = cli.run("promote", "--artefacts", bucket)
    assert copied.returncode == 0 and copied.stderr.startswith("1 artefacts of "), copied.stderr
    assert cli.run("doctor", "--artefacts", bucket).returncode == 0


def test_a_process_killed_after_the_upload_leaves_no_row_without_its_file(cli: Cli, bucket: str) -> None:
    """The upload comes before the commit: the next process makes the file again, and shares what is there."""
    cli.write(
        "killed.py",
        "import os, signal\n"
        "from holdfast import Context, tool\n"
        "from holdfast.store.artefact_bucket import ArtefactBucket\n"
        "real = ArtefactBucket.put\n"
        "def put(self, *args):\n"
        "    found = real(self, *args)\n"
        "    if not os.path.exists('killed'):\n"
        "        open('killed', 'w').close()\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return found\n"
        "ArtefactBucket.put = put\n"
        "@tool\n"
        "def make_file():\n"
        "    return {'file_refs': [{'inline_b64': 'aGVsbG8='}]}\n",
    )
    command = ("--tools", "killed", "--artefacts", bucket)
    assert cli.run("run", "files.yaml", *command).returncode == -signal.SIGKILL
    done = cli.run("run", "--continue", "last", *command)
    assert done.returncode == 0, done.stderr
    there = kept(bucket, cli.folder)
    assert len(there._all(there._place(SHA), there._prompt)) == 1
    assert cli.run("doctor", "--artefacts", bucket).returncode == 0
