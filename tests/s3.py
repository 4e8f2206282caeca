"""A server that speaks S3, on loopback, in this process: moto's, whose answers are those of AWS."""

from __future__ import annotations

import logging
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

KEY, SECRET = "AKIDEXAMPLE", "a-secret-of-the-bucket"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


class S3:
    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def make(self, bucket: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}/{bucket}", method="PUT")
        with urllib.request.urlopen(request):
            pass

    def address(self, bucket: str, prefix: str = "files") -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}"


@contextmanager
def running_s3() -> Iterator[S3]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        with patch.dict(os.environ, CREDENTIALS):
            host, port = server.get_host_and_port()
            yield S3(f"http://{host}:{port}")
    finally:
        server.stop()
