"""Whether the record says what it must: nothing lost, every part committed once, the sum right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from perdure.client.run_records import EventRecord
from perdure.model.run import RunStatus
from perdure.model.value import Value

_COMMITS = ("node_completed", "item_completed")


class Verdict(Value):
    """What the demo found in the log of its run."""

    commits: int
    """Nodes and items with a committed result."""
    retried: int
    """Attempts that failed and were made again."""
    repeated: int
    """Attempts that were made again because their worker had died."""
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


class Expected(Value):
    """What must come out."""

    items: Sequence[str]
    """Keys of the map."""
    words: int


def judge(events: Sequence[EventRecord], expected: Expected) -> Verdict:
    committed = Counter(event.key for event in events if event.kind in _COMMITS)
    retried = sum(event.kind == "node_retried" for event in events)
    extra = sum(_attempts(event.value) - 1 for event in events if _is_executed(event))
    return Verdict(
        commits=sum(committed.values()),
        retried=retried,
        repeated=extra - retried,
        problems=tuple(_problems(events, committed, expected)),
    )


def _problems(
    events: Sequence[EventRecord], committed: Counter[str | None], expected: Expected
) -> list[str]:
    problems = [
        f"{key} was committed {count} times" for key, count in committed.items() if count > 1
    ]
    problems += [f"{key} was lost" for key in expected.items if not committed[key]]
    if [event.number for event in events] != list(range(1, len(events) + 1)):
        problems.append("the log has gaps")
    if not events or events[-1].status is not RunStatus.COMPLETED:
        return [*problems, "the run is not completed"]
    words = events[-1].value["words"]
    if words != expected.words:
        problems.append(f"{words} words were counted, but the books have {expected.words}")
    return problems


def _is_executed(event: EventRecord) -> bool:
    """Whether it is the result of a body that says which attempt made it, and made by that body."""
    if event.kind == "item_completed":
        return True
    return event.kind == "node_completed" and event.node in ("fetch_prices", "draw_cover")


def _attempts(output: Any) -> int:
    return int(output["attempt"])
