"""Which tests may run side by side in several processes: all, but for those of a few places."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = (
    "tests/architecture/",  # the source is parsed once
    "tests/backends/postgres/test_plans.py",  # each of its large stores is filled once
    "proof/tests/chaos/test_short_chaos.py",  # each keeps several cores busy, and so do these:
    "tests/crash/test_waiting_processes.py",
)


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Gives each process the next test, or all tests of the next place that stay together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)
