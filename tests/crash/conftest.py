"""What several crash tests begin with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where one is: for disks that are simulated, the files beneath need no syncs of their own."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="holdfast-", dir=shared))
    yield folder
    shutil.rmtree(folder)
