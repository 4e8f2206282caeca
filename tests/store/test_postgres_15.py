"""The oldest version of PostgreSQL that can be used, where Debian's package of it is installed: all tests of the store once more."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.postgres import OTHER, Instance

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
TESTS = ["tests/store/test_postgres.py", "tests/store/test_postgres_views.py"]
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not PROGRAMS.exists(), reason="postgresql-15 is not installed")
def test_the_oldest_version_passes_all_tests_of_the_store() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        server = Instance(Path(folder, "15"), PROGRAMS)
        server.init()
        server.start()
        try:
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                *TESTS,
            ]
            ran = subprocess.run(command, check=False, cwd=ROOT, env={**os.environ, OTHER: server.url}, text=True, capture_output=True)  # fmt: skip
        finally:
            server.stop()
    assert ran.returncode == 0, ran.stdout
    assert "skipped" not in ran.stdout
