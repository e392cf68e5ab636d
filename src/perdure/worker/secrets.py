"""Secrets: asked of the worker's provider when a body needs them, and never kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, MissingSecret, Permanent
from perdure.model import check
from perdure.model.secret import SECRET_LENGTH_MIN, variable_of
from perdure.worker.masking import Masker

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
        if isinstance(provider, Mapping):
            self._ask = provider.get
        elif provider is None:
            self._ask = _from_environment
        else:
            self._ask = _checked(provider)
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
    """The secrets that one attempt was given: each is asked for once. For any thread."""

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


def _checked(provider: object) -> Callable[[str], Any]:
    if not callable(provider) or iscoroutinefunction(provider):
        # Only its type: the value may be a secret.
        kind = type(provider).__name__
        raise InvalidInput(INVALID_SECRETS.fault(("secrets",), type=kind))
    return provider


def _from_environment(name: str) -> str | None:
    return os.environ.get(variable_of(name))
