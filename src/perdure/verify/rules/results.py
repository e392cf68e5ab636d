"""I10: a run ends as it is known to end, whoever executed it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.model.run import RunStatus
from perdure.verify.finding import Finding
from perdure.verify.settings import ANY_RESULT
from perdure.verify.view import RunView


def as_expected(view: RunView) -> Iterator[Finding]:
    expected = view.settings.expected.get(view.run.id)
    if expected is None:
        return
    if view.state.status is not expected.status:
        text = f"it is {view.state.status} instead of {expected.status}"
        yield view.finding("I10", "as_expected", text, view.state.number)
        return
    if expected.result is ANY_RESULT or expected.status is not RunStatus.COMPLETED:
        return
    stored = {event.number: event for event in view.events}.get(view.state.result_ref)
    result = None if stored is None else msgspec.json.decode(view.value_of(stored) or b"null")
    if result != expected.result:
        text = f"its result is {result!r} instead of {expected.result!r}"
        yield view.finding("I10", "as_expected", text, view.state.result_ref)


RULES = (as_expected,)
