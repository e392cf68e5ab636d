"""``python -m proof.evidence`` on a store and the evidence log of chaos."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncClient, Flow
from proof.evidence import EvidenceLog
from proof.evidence.__main__ import main

asking = Flow("asking").wait_for_signal("go").build()


@pytest.fixture
async def waiting(sqlite_url: str) -> str:
    """A store with one waiting run."""
    async with AsyncClient(sqlite_url) as client:
        await client.submit(asking, 1, id="r")
    return sqlite_url


def test_says_what_is_wrong(
    waiting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    EvidenceLog(log).accepted(run="r")
    assert main([waiting, str(log)]) == 0

    EvidenceLog(log).accepted(run="lost")

    assert main([waiting, str(log)]) == 1
    assert "I1 evidence.accepted.run: run 'lost'" in capsys.readouterr().out
    assert main([waiting, str(log), "--pruned"]) == 0


def test_takes_no_fault_of_its_own_for_one_of_the_store(
    waiting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([waiting, str(tmp_path)]) == 2
    assert main([waiting, str(tmp_path / "missing")]) == 2
    assert main(["nowhere://x", str(tmp_path / "missing")]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["cannot check it"] * 3
