"""Logs that were recorded once still fold to the same states, and are still decided the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.engine.fold import fold
from perdure.model.event import Event, decode_event
from perdure.model.ids import RunId
from perdure.model.run import RunState
from tests.replay.recording import LOGS, RUNS, plain, read, written

PATHS = sorted(LOGS.glob("*.json"))


def test_there_is_a_log_of_every_run():
    assert {path.stem for path in PATHS} >= RUNS.keys()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recorded_log_folds_to_the_state_that_was_recorded(path):
    recording = read(path)
    state = RunState()
    for number, data in enumerate(recording.events, start=1):
        state = fold(state, decode_event(RunId("run"), number, bytes(data)))

    assert plain(state) == recording.state


@pytest.mark.parametrize("name", RUNS)
def test_the_same_happenings_are_decided_as_they_were(name):
    decided = msgspec.json.decode(written(RUNS[name]()))

    assert without_codes(decided) == msgspec.json.decode((LOGS / f"{name}.json").read_bytes())


def without_codes(recorded: Any) -> Any:
    """Failures have had codes since these logs were recorded; all else is as it was."""
    if isinstance(recorded, list):
        return [without_codes(each) for each in recorded]
    if not isinstance(recorded, dict):
        return recorded
    is_failure = {"type", "message", "causes"} <= recorded.keys()
    return {
        name: without_codes(value)
        for name, value in recorded.items()
        if not (is_failure and name == "code")
    }


def test_every_kind_of_event_was_recorded():
    recorded = {msgspec.json.decode(data)["type"] for path in PATHS for data in read(path).events}

    assert recorded == {each.__struct_config__.tag for each in Event.__args__}
