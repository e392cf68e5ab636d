"""Where a request goes: a URL taken apart, with everything refused that two readers could read two
ways."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from perdure.diagnostics import Code, declare
from perdure.errors import InvalidInput
from perdure.model.showing import cut, shown, type_name
from perdure.model.value import Value

URL_MAX = 16_384
HOST_MAX = 253

_PORTS = {"http": 80, "https": 443}
# Control characters, spaces and backslashes: readers of URLs drop them, or read them as "/".
_MISLEADING = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|[0-9a-f:.]+", re.IGNORECASE)
_UNQUOTED = "%/:=&?~+!$,;'@()*[]"

URL_TOO_LONG = declare("http.url_too_long", "url has more than {most} characters")
URL_CHARACTERS = declare(
    "http.url_characters", "url has a space, a backslash or a control character in it"
)
URL_SCHEME = declare("http.url_scheme", "url must begin with http:// or https://")
URL_CREDENTIALS = declare(
    "http.url_credentials", "url has a user or password before the host; use a header for them"
)
URL_UNREADABLE = declare("http.url_unreadable", "url cannot be read: its host is not one")
URL_HOST = declare("http.url_host", "url has no usable host")
URL_PORT = declare("http.url_port", "url has a port that is not one of 1 to 65535")
TARGET_TOO_LONG = declare(
    "http.target_too_long", "url and query come to more than {most} characters"
)
QUERY_TYPE = declare("http.query_type", "query {parameter!r} is {found}; use texts and numbers")


class Destination(Value):
    """Host and port to connect to, and what to ask there."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """As messages tell it: the rest of a URL may have keys in it."""
        return f"{self.scheme}://{self.host_header}"


def destination(url: str, query: Mapping[str, Any] | None = None) -> Destination:
    """Read a URL; ``InvalidInput`` says what is wrong with it, not what it is."""
    if len(url) > URL_MAX:
        raise _refusal(URL_TOO_LONG, most=URL_MAX)
    if _MISLEADING.search(url):
        raise _refusal(URL_CHARACTERS)
    parts = _parts(url)
    if parts.scheme not in _PORTS:
        raise _refusal(URL_SCHEME)
    if "@" in parts.netloc:
        raise _refusal(URL_CREDENTIALS)
    return Destination(
        scheme=parts.scheme,
        host=_host(parts),
        port=_port(parts),
        target=_target(parts, query or {}),
    )


def _refusal(code: Code, **args: Any) -> InvalidInput:
    return InvalidInput(code.fault(("url",), name="url", **args))


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise _refusal(URL_UNREADABLE) from error


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    try:
        if not host.isascii() and len(host) <= HOST_MAX:
            host = host.encode("idna").decode()
    except UnicodeError as error:
        raise _refusal(URL_HOST) from error
    host = host.removesuffix(".")
    if not host or len(host) > HOST_MAX or not _HOST.fullmatch(host):
        raise _refusal(URL_HOST)
    return host.lower()


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise _refusal(URL_PORT)
    return _PORTS[parts.scheme] if port is None else port


def _target(parts: SplitResult, query: Mapping[str, Any]) -> str:
    added = urlencode([pair for name in query for pair in _pairs(name, query[name])])
    asked = "&".join(filter(None, [quote(parts.query, safe=_UNQUOTED), added]))
    path = quote(parts.path or "/", safe=_UNQUOTED)
    target = f"{path}?{asked}" if asked else path
    if len(target) > URL_MAX:
        raise _refusal(TARGET_TOO_LONG, most=URL_MAX)
    return target


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return [(name, _query_text(name, each)) for each in values]


def _query_text(name: str, value: Any) -> str:
    match value:
        case str():
            return value
        case bool() | int() | float():
            return shown(value)
        case _:
            raise InvalidInput(
                QUERY_TYPE.fault(
                    ("query", name), name=name, parameter=cut(name), found=type_name(value)
                )
            )
