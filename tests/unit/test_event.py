"""Events as they are stored: read back as they were, or refused."""

from __future__ import annotations

import pytest

from perdure.errors import EventLogCorrupt, UnknownEvent
from perdure.model.event import Effects, NodeCompleted, decode_event, encode_event
from perdure.model.ids import RunId

RUN = RunId("order-3")


def test_comes_back_as_it_was_written():
    event = NodeCompleted(
        node="charge", port="paid", iteration=2, effects=Effects(started=("ship",))
    )

    assert decode_event(RUN, 4, encode_event(event)) == event


def test_of_a_newer_version_is_refused_rather_than_skipped():
    with pytest.raises(UnknownEvent, match="event 4 of run 'order-3' is a 'NodeDreamt'") as refused:
        decode_event(RUN, 4, b'{"type":"NodeDreamt","node":"charge"}')

    assert (refused.value.number, refused.value.type) == (4, "NodeDreamt")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[1]",
        b'{"node":"charge"}',
        b'{"type":"NodeCompleted"}',
        b'{"type":7}',
        b"[" * 100_000,
    ],
)
def test_that_is_none_is_corruption(data):
    with pytest.raises(EventLogCorrupt, match="run 'order-3' is corrupt: event 4 cannot be read"):
        decode_event(RUN, 4, data)
