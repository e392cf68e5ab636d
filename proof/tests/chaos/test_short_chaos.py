"""A short run of chaos on both stores that processes share: the certain faults, then others."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.faults import Environment
from proof.chaos.harness import ChaosSettings, Harness
from proof.chaos.postgres import PostgresEnvironment
from proof.chaos.sqlite import SqliteEnvironment
from proof.chaos.verdict import report_lines
from tests.postgres_server import PostgresServer

SETTINGS = ChaosSettings(seed=5, seconds=15, workers=2, clients=1, rate=8, settle_seconds_max=120)

ON_PROCESSES = {
    "kill -9 of a worker",
    "second worker under one id",
    "worker frozen past its leases",
}
ON_SQLITE = {"disk full for all", "clock turned forward", "clock turned back"}
ON_POSTGRESQL = {
    "crash of PostgreSQL",
    "connections cut",
    "connections half-open, then lost",
    "idle transaction",
}

pytestmark = pytest.mark.timeout(300)


async def test_chaos_on_sqlite_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    survived = await chaos(SqliteEnvironment(tmp_path), tmp_path)

    assert survived >= ON_PROCESSES | ON_SQLITE


async def test_chaos_on_postgresql_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, private_postgres: PostgresServer
) -> None:
    survived = await chaos(PostgresEnvironment(private_postgres), tmp_path)

    assert survived >= ON_PROCESSES | ON_POSTGRESQL
    for process in ("worker-0", "worker-1", "client-0"):
        assert "the clock is wrong by" in (tmp_path / f"{process}.log").read_text()


async def chaos(environment: Environment, folder: Path) -> set[str]:
    """The faults that hit, without any harm."""
    lines: list[str] = []

    report = await Harness(environment, SETTINGS, folder, lines.append).run()

    assert report.is_good, "\n".join([*report_lines(report), *lines])
    assert report.load.runs > 5
    return {fault.name for fault in report.survived}
