"""The end of a run that is not durable yet, and the commit that waits for what follows the run."""

from __future__ import annotations

from holdfast.engine.state import Run
from holdfast.runtime.commits import Commits


class LastRow:
    """Holds the commit that ends a run back until `release`: until the next run is part of it, or is known not to be."""

    def __init__(self, run: Run, commits: Commits) -> None:
        self.run = run
        self._commits, self._batch = commits, commits.batch
        self._holds = True
        commits.expected += 1

    @property
    def is_collected(self) -> bool:
        """Whether the end is not on its way to the disk yet."""
        return self._commits.batch is self._batch

    def release(self) -> None:
        if self._holds:
            self._holds = False
            self._commits.expected -= 1
