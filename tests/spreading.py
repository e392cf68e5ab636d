"""Which tests may run side by side in several processes: all, but for those of a few files."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

ONE_AFTER_THE_OTHER = (
    "tests/backends/postgres/test_plans.py",  # each of its large stores is filled once
    "tests/chaos/test_short_chaos.py",  # each keeps several cores busy, and so do these:
    "tests/crash/test_waiting_processes.py",
)


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Gives each process the next test, or the next file whose tests stay together."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path in ONE_AFTER_THE_OTHER else nodeid
