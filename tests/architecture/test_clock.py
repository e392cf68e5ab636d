"""Only the clock reads the time, so tests can turn it everywhere."""

from __future__ import annotations

import re

from tests.architecture.source_tree import ROOT, Module, dotted_references, modules

CLOCK = "clock.py"

# All of `time` but waiting: it reads a clock, or turns the reading into local time.
READS_THE_TIME = re.compile(
    r"time\.(?!sleep$).+"
    r"|datetime\.(datetime|date)\.(now|utcnow|today)"
)

# "path": why this file may read the time by itself
READERS_ON_PURPOSE: dict[str, str] = {}


def test_only_the_clock_reads_the_time():
    readers = {reading.partition(":")[0]: reading for reading in readings(modules())}
    assert readers.pop(CLOCK, None), "the clock itself was not found reading the time"

    assert readers.keys() == READERS_ON_PURPOSE.keys(), readers  # stale excuses fail too


def test_a_simulated_history_never_reads_the_time():
    assert readings(modules(ROOT / "proof" / "simulate")) == []


class TestTheCheckItself:
    def test_finds_every_way_to_read_the_time(self, tmp_path):
        for number, text in enumerate(
            [
                "import time\nx = time.time()",
                "import time as t\nx = t.monotonic_ns",
                "from time import perf_counter\nx = perf_counter()",
                "import datetime\nx = datetime.datetime.now()",
                "import datetime as d\nx = d.date.today()",
                "from datetime import datetime as dt\nx = dt.utcnow()",
            ]
        ):
            (tmp_path / f"reader_{number}.py").write_text(text)

        assert readings(modules(tmp_path)) == [
            "reader_0.py:2 time.time",
            "reader_1.py:2 time.monotonic_ns",
            "reader_2.py:2 time.perf_counter",
            "reader_3.py:2 datetime.datetime.now",
            "reader_4.py:2 datetime.date.today",
            "reader_5.py:2 datetime.datetime.utcnow",
        ]

    def test_lets_others_wait_and_calculate(self, tmp_path):
        (tmp_path / "waiter.py").write_text(
            "import time\nfrom datetime import UTC, datetime\n"
            "time.sleep(1)\nx = datetime.fromtimestamp(0, UTC)\nself.clock.now()"
        )

        assert readings(modules(tmp_path)) == []


def readings(tree: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line} {name}"
        for module in tree
        for line, name in dotted_references(module)
        if READS_THE_TIME.fullmatch(name)
    ]
