"""Three nodes on one PostgreSQL server while everything between and below them fails: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.campaign import ran
from tests.postgres import Server

KINDS = 9


def test_faults_of_every_kind_lose_and_double_nothing(postgres_server: Server, tmp_path: Path) -> None:
    report = ran(postgres_server, tmp_path, seed=1, faults=2 * KINDS)
    assert report.problems == []
    assert len(report.faults) == KINDS  # a campaign without a kind of fault would prove nothing about it
    assert report.adopted and report.over and report.unknown
