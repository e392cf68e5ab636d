"""What a body that paused gets to go on with."""

from __future__ import annotations

import msgspec

from perdure.model.report import PastPause, Report, ReportStatus, Resumption
from perdure.rules.reading import Reading


def resumption_of(reading: Reading, text: str) -> bytes | None:
    """The pauses of a key, and how far its work came; None if there is nothing of either."""
    pauses = reading.state.pauses.get(text, ())
    progress = reading.state.progress.get(text)
    failures = reading.state.retried.get(text, 0)
    if not pauses and progress is None and not failures:
        return None
    partial = None if progress is None else _report(reading, progress).progress
    past = tuple(
        PastPause(
            name=pause.name,
            checkpoint=msgspec.Raw(reading.json(pause.checkpoint)),
            report=_report(reading, pause.report or reading.state.early.get(text, 0)),
        )
        for pause in pauses
    )
    return msgspec.json.encode(Resumption(pauses=past, progress=partial, failures=failures))


def _report(reading: Reading, number: int) -> Report:
    if not number:  # it is only asked after
        return Report(status=ReportStatus.PROGRESS)
    return msgspec.json.decode(reading.json(number), type=Report)
