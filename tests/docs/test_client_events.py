"""The reference lists every event for clients with its source."""

from __future__ import annotations

import re

from perdure.model.client_event import EVENTS, ClientEvent, EventSource
from tests.architecture.source_tree import ROOT

PAGE = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
[SECTION] = re.findall(r"^## Events for clients\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
SOURCES = {
    EventSource.JOB: "job row",
    EventSource.RUN: "run row",
    EventSource.WAIT: "open approval",
    EventSource.LIVE: "live",
}


def test_every_event_is_listed_with_its_source():
    listed = re.findall(r"^\| `(\w+\.\w+)` \| ([a-z ]+) \|", SECTION, re.MULTILINE)
    assert listed == [(name, SOURCES[source]) for name, source in sorted(EVENTS.items())]


def test_every_field_is_described():
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert set(ClientEvent.__struct_fields__) <= named
