"""Secrets for task bodies: resolved by a provider, and masked in everything that is stored.

A value is recognized as it is, and as JSON, URLs, ``repr`` and base64 write it; a long line of a
value of several lines also alone. What a body computes from it is not.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import iscoroutinefunction
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, MissingSecret, Permanent
from perdure.model import check
from perdure.model.failure import Failure
from perdure.model.job import Progress
from perdure.model.outcome import Completed, NodeOutcome, Paused, Skipped
from perdure.model.payload import from_json, storable_text
from perdure.tasks.secret import SECRET_LENGTH_MIN, variable_of

SECRET_IN_NAME = declare(
    "worker.secret_in_name",
    "the name of a {what} is stored as it is, and this one contains a secret",
)


MASK = "***"
LINE_LENGTH_MIN = 8
"""A shorter line of a secret may well be a line of something else."""


class Masker:
    """Masks a fixed set of secret values. Immutable."""

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


INVALID_SECRETS = declare(
    "worker.invalid_secrets",
    "secrets must be a mapping of names to strings, or a function (got a {type})",
    "The function takes a name and returns a string, or None; it cannot be async",
)


Provider = Mapping[str, str] | Callable[[str], str | None]

SECRET_TYPE = declare("worker.secret_type", "secret {secret!r} is not a text, but a {found}")
SECRET_TOO_SHORT = declare(
    "worker.secret_too_short",
    "secret {secret!r} is shorter than {least} characters; it could not be masked without masking "
    "nearly everything",
)


class Secrets:
    """Where a worker's secrets come from: a mapping, a function, or else its environment."""

    def __init__(self, provider: Provider | None) -> None:
        self._ask: Callable[[str], Any]
        given: object = provider  # from code without types it may be anything
        if isinstance(provider, Mapping):
            self._ask = provider.get
        elif provider is None:
            self._ask = lambda name: os.environ.get(variable_of(name))
        elif callable(given) and not iscoroutinefunction(given):
            self._ask = given
        else:
            # Only its type: the value may be a secret.
            found_type = type(provider).__name__
            raise InvalidInput(INVALID_SECRETS.fault(("secrets",), type=found_type))
        self.is_own = provider is not None

    def find(self, name: str) -> str:
        value = self._ask(check.name(name, "secret"))
        if value is None:
            raise MissingSecret(
                name=name,
                advice="the worker's secrets=... do not have it"
                if self.is_own
                else f"set {variable_of(name)} in the worker's environment, or give the worker "
                "secrets=...",
            )
        if not isinstance(value, str):
            raise Permanent(SECRET_TYPE.fault(secret=name, found=type(value).__name__))
        if len(value) < SECRET_LENGTH_MIN:
            raise Permanent(SECRET_TOO_SHORT.fault(secret=name, least=SECRET_LENGTH_MIN))
        return value


class ResolvedSecrets:
    """The secrets of one attempt: each is resolved once. Thread-safe."""

    __slots__ = ("_lock", "_secrets", "_values", "masker")

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self.masker: Masker | None = None

    def find(self, name: str) -> str:
        with self._lock:
            if name not in self._values:
                self._values[name] = self._secrets.find(name)
                self.masker = Masker(self._values.values())
            return self._values[name]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(self._values.values())
