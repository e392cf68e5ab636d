"""Chaos in its short form: every kind of fault that fits, on both stores that processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.chaos.harness import ChaosSettings, Harness
from perdure.testing.chaos.postgres_stage import PostgresStage
from perdure.testing.chaos.report import report_lines
from perdure.testing.chaos.sqlite_stage import SqliteStage
from perdure.testing.chaos.stage import Stage
from tests.postgres_server import PostgresServer

SETTINGS = ChaosSettings(seed=5, seconds=15, workers=2, clients=1, rate=8, settle_seconds_max=120)

# One after the other on one of the test processes: each keeps several cores busy.
pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(300)]


async def test_chaos_on_sqlite_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    await check_chaos(SqliteStage(tmp_path), tmp_path)


async def test_chaos_on_postgresql_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, private_postgres: PostgresServer
) -> None:
    await check_chaos(PostgresStage(private_postgres), tmp_path)


async def check_chaos(stage: Stage, folder: Path) -> None:
    told: list[str] = []

    report = await Harness(stage, SETTINGS, folder, told.append).run()

    assert report.is_good, "\n".join([*report_lines(report), *told])
    assert report.load.runs > 5
    assert len({fault.name for fault in report.faults}) > 3
