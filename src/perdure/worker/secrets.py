"""Secrets for task bodies: resolved by a provider, and masked in everything that is stored.

A secret is recognized verbatim and in JSON, URL, ``repr`` and base64 encoding, the latter also as a
part of a longer text; long lines of a multiline secret are recognized separately. Values that a
body derives from a secret are not masked.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import iscoroutinefunction
from typing import Any, AnyStr, Generic
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
from perdure.tasks.secret import SECRET_LENGTH_MIN, UNQUOTED_IN_URLS, variable_of

SECRET_IN_NAME = declare(
    "worker.secret_in_name",
    "the name of a {what} is stored unmasked and must not contain a secret",
)


MASK = "***"
LINE_LENGTH_MIN = 8
"""Shorter lines of a secret are too common in other text to be masked."""
BASE64_LENGTH_MIN = 8
"""Likewise for parts of base64."""
_URL_SAFE = str.maketrans("+/", "-_")


class Masker:
    """Masks a fixed set of secret values. Immutable."""

    __slots__ = ("_forms", "_in_bytes", "_in_json")

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value)}
        self._forms = _Forms(forms)
        self._in_bytes = _Forms({each for form in forms for each in _raw_forms(form)})
        self._in_json = [(_escaped(form).encode(), form) for form in forms]

    def is_in(self, text: str) -> bool:
        return self._forms.are_in(text)

    def text(self, text: str) -> str:
        return _masked(text, self._forms, MASK)

    def raw(self, data: bytes) -> bytes:
        """Mask in data of any kind, before it is encoded."""
        return _masked(data, self._in_bytes, MASK.encode())

    def json(self, data: bytes) -> bytes:
        """The JSON with secrets in strings and numbers masked."""
        if not any(escaped in data for escaped, _ in self._in_json):
            return data
        try:
            value = from_json(data)
            # Look for the few forms that occur at all, not for all forms in each string.
            written = msgspec.json.encode(value)
            forms = _Forms(form for escaped, form in self._in_json if escaped in written)
            return msgspec.json.encode(_masked_value(value, forms))
        except RecursionError:  # nested too deeply to search
            return msgspec.json.encode(MASK)

    def value(self, value: Any) -> Any:
        """The JSON value with secrets masked."""
        return _masked_value(value, self._forms)

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
        """The outcome with secrets masked; its payload is not encoded by the codec yet."""
        match outcome:
            case Completed():
                return replace(outcome, output=self.json(outcome.output))
            case Paused():
                return replace(outcome, checkpoint=self.json(outcome.checkpoint))
            case Skipped():
                return replace(outcome, reason=self.text(outcome.reason))
        failure = getattr(outcome, "failure", None)
        return outcome if failure is None else replace(outcome, failure=self.failure(failure))


class _Forms(Generic[AnyStr]):
    """Forms of secrets by length: a short text is searched only for those that fit into it."""

    __slots__ = ("_forms", "_lengths")

    def __init__(self, forms: Iterable[AnyStr]) -> None:
        self._forms: list[AnyStr] = sorted(forms, key=len)
        self._lengths = [len(form) for form in self._forms]

    def fitting(self, text: AnyStr) -> list[AnyStr]:
        return self._forms[: bisect_right(self._lengths, len(text))]

    def are_in(self, text: AnyStr) -> bool:
        return any(form in text for form in self.fitting(text))


def _masked_value(value: Any, forms: _Forms[str]) -> Any:
    if isinstance(value, str):
        return _masked(value, forms, MASK)
    if isinstance(value, dict):
        return {
            _masked(key, forms, MASK): _masked_value(item, forms) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_masked_value(item, forms) for item in value]
    if isinstance(value, int | float) and forms.are_in(json.dumps(value)):
        return MASK
    return value


def _masked(text: AnyStr, forms: _Forms[AnyStr], mask: AnyStr) -> AnyStr:
    """The text with each secret replaced, and overlapping ones together."""
    # One form after the other: a pattern of all forms of a long secret would take seconds per
    # megabyte without releasing the interpreter, and the worker would lose its leases.
    present = [form for form in forms.fitting(text) if form in text]
    if not present:
        return text
    spans = sorted(span for form in present for span in _spans(text, form))
    parts: list[AnyStr] = []
    (start, end), copied = spans[0], 0
    for first, last in spans[1:]:
        if first < end:
            end = max(end, last)
        else:
            parts.append(text[copied:start])
            start, end, copied = first, last, end
    parts += [text[copied:start], text[end:]]
    return mask.join(parts)


def _spans(text: AnyStr, form: AnyStr) -> Iterator[tuple[int, int]]:
    """Where the form is in the text; occurrences that overlap are one span."""
    length, start = len(form), text.find(form)
    while start >= 0:
        last = start
        # The last one that overlaps, so that a repetitive text takes linear time.
        while (overlapping := text.rfind(form, last + 1, last + 2 * length - 1)) >= 0:
            last = overlapping
        yield start, last + length
        start = text.find(form, last + length)


def _forms(value: str) -> Iterator[str]:
    lines = [line.strip() for line in value.splitlines()]
    for part in (value, *(line for line in lines if len(line) >= LINE_LENGTH_MIN)):
        as_bytes = part.encode(errors="surrogatepass")
        texts = (
            part,
            storable_text(part),
            _escaped(part),
            json.dumps(part)[1:-1],
            repr(part)[1:-1],
        )
        for text in dict.fromkeys(texts):
            encoded = text.encode(errors="surrogatepass")
            reads = (
                text,
                # As read from a response that declares another charset, or from its headers.
                encoded.decode("latin-1"),
                encoded.decode("cp1252", errors="replace"),
            )
            for read in dict.fromkeys(reads):
                yield read
                # As a string in a JSON text, such as a request that a service echoes.
                yield _escaped(read)
                yield json.dumps(read)[1:-1]
        yield quote(as_bytes)
        yield quote(as_bytes, safe="")
        yield quote(as_bytes, safe=UNQUOTED_IN_URLS)
        yield quote_plus(as_bytes)
        yield base64.b64encode(as_bytes).decode()
        for form in _within_base64(as_bytes):
            yield form
            yield form.translate(_URL_SAFE)


def _within_base64(data: bytes) -> Iterator[str]:
    """The base64 of a longer text, wherever the data starts in it, as far as the data decides it.

    Bytes in results are stored like this, and so are users and passwords in requests.
    """
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        form = encoded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        if len(form) >= BASE64_LENGTH_MIN:
            yield form


def _raw_forms(form: str) -> Iterator[bytes]:
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        yield form.encode(encoding, errors="surrogatepass")
    yield form.encode("latin-1", errors="backslashreplace")


def _escaped(text: str) -> str:
    """The string as it is escaped in stored JSON."""
    return msgspec.json.encode(text.encode(errors="backslashreplace").decode())[1:-1].decode()


INVALID_SECRETS = declare(
    "worker.invalid_secrets",
    "secrets must be a mapping of names to strings, or a function (got a {type})",
    "The function takes a name and returns a string, or None; it cannot be async",
)


Provider = Mapping[str, str] | Callable[[str], str | None]

SECRET_TYPE = declare("worker.secret_type", "secret {secret!r} must be a string (got a {found})")
SECRET_TOO_SHORT = declare(
    "worker.secret_too_short",
    "secret {secret!r} is shorter than {least} characters, too short to be masked",
)


class Secrets:
    """Looks up secrets in a mapping, with a function, or by default in the environment."""

    def __init__(self, provider: Provider | None) -> None:
        self._ask: Callable[[str], Any]
        given: object = provider  # untyped callers may pass anything
        if isinstance(provider, Mapping):
            self._ask = provider.get
        elif provider is None:
            self._ask = lambda name: os.environ.get(variable_of(name))
        elif callable(given) and not iscoroutinefunction(given):
            self._ask = given
        else:
            # Report only the type: the value may be a secret.
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

    __slots__ = ("_given", "_lock", "_secrets", "_values", "masker")

    def __init__(self, secrets: Secrets, given: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._given = given
        """Values that were resolved elsewhere and are to be masked too."""
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self.masker = Masker(given) if given else None

    def find(self, name: str) -> str:
        with self._lock:
            if name not in self._values:
                self._values[name] = self._secrets.find(name)
                self.masker = Masker(self.values)
            return self._values[name]

    @property
    def values(self) -> tuple[str, ...]:
        return (*self._given, *self._values.values())
