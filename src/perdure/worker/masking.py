"""Masking: the values of secrets are taken out of everything that is kept of an attempt.

A value is recognised as it is, and as JSON, URLs, ``repr`` and base64 write it; a long line of a
value of several lines also alone. What a body computes from it is not.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.model.failure import Failure
from perdure.model.job import Progress
from perdure.model.outcome import Completed, NodeOutcome, Paused, Skipped
from perdure.model.payload import from_json, storable_text

SECRET_IN_NAME = declare(
    "worker.secret_in_name",
    "the name of a {what} is stored as it is, and this one contains a secret",
)


MASK = "***"
LINE_LENGTH_MIN = 8
"""A shorter line of a secret may well be a line of something else."""


class Masker:
    """Texts that must not be kept. Does not change."""

    __slots__ = ("_in_json", "_pattern")

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first, so that of a value within another one nothing is left standing.
        forms = sorted({form for value in values for form in _forms(value)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, forms)))
        self._in_json = tuple(_escaped(form).encode() for form in forms)

    def is_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK, text)

    def json(self, data: bytes) -> bytes:
        """The same JSON, but for texts and numbers that have a secret in them."""
        if not any(form in data for form in self._in_json):
            return data
        try:
            return msgspec.json.encode(self.value(from_json(data)))
        except RecursionError:  # too deep to look through
            return msgspec.json.encode(MASK)

    def value(self, value: Any) -> Any:
        """The same for plain JSON values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and self.is_in(json.dumps(value)):
            return MASK
        return value

    def failure(self, failure: Failure) -> Failure:
        causes = [
            replace(cause, type=self.text(cause.type), message=self.text(cause.message))
            for cause in failure.causes
        ]
        return replace(
            failure,
            type=self.text(failure.type),
            message=self.text(failure.message),
            traceback=self.text(failure.traceback),
            causes=tuple(causes),
        )

    def progress(self, progress: Progress) -> Progress:
        return replace(
            progress, message=self.text(progress.message), details=self.value(progress.details)
        )

    def outcome(self, outcome: NodeOutcome) -> NodeOutcome:
        """The same outcome, whose payload is plain JSON yet."""
        match outcome:
            case Completed():
                return replace(outcome, output=self.json(outcome.output))
            case Paused():
                return replace(outcome, checkpoint=self.json(outcome.checkpoint))
            case Skipped():
                return replace(outcome, reason=self.text(outcome.reason))
        failure = getattr(outcome, "failure", None)
        return outcome if failure is None else replace(outcome, failure=self.failure(failure))


def _forms(value: str) -> Iterator[str]:
    lines = [line.strip() for line in value.splitlines()]
    for part in (value, *(line for line in lines if len(line) >= LINE_LENGTH_MIN)):
        yield part
        yield storable_text(part)
        yield _escaped(part)
        yield json.dumps(part)[1:-1]
        yield repr(part)[1:-1]
        as_bytes = part.encode(errors="surrogatepass")
        yield quote(as_bytes)
        yield quote(as_bytes, safe="")
        yield quote_plus(as_bytes)
        yield base64.b64encode(as_bytes).decode()


def _escaped(text: str) -> str:
    """As it stands in the JSON that is stored."""
    return msgspec.json.encode(text.encode(errors="backslashreplace").decode())[1:-1].decode()
