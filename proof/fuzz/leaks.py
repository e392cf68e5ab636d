"""Secrets that nobody may tell, and everywhere they are looked for."""

from __future__ import annotations

import base64
import logging
import traceback
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

from proof.strategies.values import PASSWORD

SECRET = 'tok"en\\é-5591027746380/ü'
"""Of a worker. Has parts that JSON, URLs, ``repr`` and ASCII each write in another way."""
_PARTS = ("5591027746380", base64.b64encode(SECRET.encode()).decode(), PASSWORD)
"""However the rest is written, one of these is there."""


class Leak(AssertionError):
    """A secret is where it must not be."""


def look_for_secrets(where: str, thing: object, url: str = "") -> None:
    """Raise ``Leak`` if ``thing`` tells a secret, or the password of the store at ``url``."""
    text = thing if isinstance(thing, str) else repr(thing)
    if any(part in text for part in _parts(url)):
        raise Leak(f"{where} tells a secret: {text[:2000]}")


def all_that_tells(error: BaseException) -> str:
    """What a person or a program may see of an error: its text, its fields, and its causes."""
    chain = "".join(traceback.format_exception(error))
    return f"{error!r} {vars(error)!r} {chain}"


class Ear(logging.Handler, AbstractContextManager["Ear"]):
    """Hears everything that is logged meanwhile, down to what is for debugging."""

    def __init__(self, url: str = "") -> None:
        super().__init__(logging.DEBUG)
        self._url = url
        self._leaks: list[Leak] = []
        self._level_before = logging.NOTSET
        self.heard = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.heard += 1
        try:
            look_for_secrets(f"the log of {record.name}", self.format(record), self._url)
        except Leak as leak:
            # Not raised here: whoever logs is not to be disturbed, and may be another thread.
            self._leaks.append(leak)

    def check(self) -> None:
        if self._leaks:
            raise self._leaks[0]

    def __enter__(self) -> Ear:
        root = logging.getLogger()
        self._level_before = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)


def _parts(url: str) -> tuple[str, ...]:
    password = urlsplit(url).password if url else None
    return _PARTS if password is None else (*_PARTS, password)
