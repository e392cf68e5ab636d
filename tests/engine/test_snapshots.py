"""Snapshots: a state comes back as it was, or not at all; and they are not taken too often."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine import snapshot
from perdure.model.run import RunState, Snapshot
from tests.engine.graphs import chain, mapped, task
from tests.engine.played import Played


def full() -> RunState:
    """With something in every map."""
    run = Played(chain(mapped("m", concurrency=2), task("end")), [1, 2, 3])
    run.finish("m[0]")
    run.signal("go", 1)
    return run.state


class TestRestore:
    def test_gives_back_what_was_taken(self):
        kept = snapshot.take(full())

        assert kept.number == full().number
        assert snapshot.restore(kept) == full()

    @pytest.mark.parametrize("data", [b"", b"no json", b"{}", b"[]", b'{"format":1}'])
    def test_what_cannot_be_read_is_not_trusted(self, data):
        assert snapshot.restore(Snapshot(number=1, data=data)) is None

    def test_one_that_was_changed_is_not_trusted(self):
        kept = snapshot.take(full())
        data = kept.data.replace(b'"running"', b'"waiting"')

        assert data != kept.data
        assert snapshot.restore(Snapshot(number=kept.number, data=data)) is None

    def test_one_of_another_event_is_not_trusted(self):
        kept = snapshot.take(full())

        assert snapshot.restore(Snapshot(number=kept.number + 1, data=kept.data)) is None

    def test_one_of_another_format_is_not_trusted(self):
        kept = snapshot.take(full())
        fields = msgspec.json.decode(kept.data)
        data = msgspec.json.encode(fields | {"format": snapshot.FORMAT + 1})

        assert snapshot.restore(Snapshot(number=kept.number, data=data)) is None


class TestIsDue:
    def test_after_so_many_events(self):
        state = full()

        assert not snapshot.is_due(state, state.number - snapshot.SPACING + 1)
        assert snapshot.is_due(state, state.number - snapshot.SPACING)

    def test_less_often_for_a_large_state(self):
        count = 3 * snapshot.SPACING
        run = Played(chain(mapped("m"), task("end")), [0] * count, checks=False)
        taken = [0]
        for item in range(count):
            run.finish(f"m[{item}]")
            if snapshot.is_due(run.state, taken[-1]):
                taken.append(run.state.number)

        written = sum(min(number, count) for number in taken)  # about the items in each
        assert len(taken) > 1
        assert written <= 3 * count
