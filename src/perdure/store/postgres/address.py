"""The address of a store: its URL, split into asyncpg's options and ours."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from perdure.errors import InvalidStoreUrl, without_password
from perdure.model.value import Value
from perdure.store.sql.statements import is_identifier

SCHEMA_DEFAULT = "perdure"
POOL_DEFAULT, POOL_MAX = 5, 100
STATEMENT_CACHE_DEFAULT, STATEMENT_CACHE_MAX = 500, 10_000
CONNECT_TIMEOUT_DEFAULT_S, CONNECT_TIMEOUT_MAX_S = 5, 300
ANSWER_TIMEOUT_DEFAULT_S, ANSWER_TIMEOUT_MAX_S = 60, 86_400

_ENCODE = "percent-encode special characters in the user name and password"
_OURS = ("schema", "pool", "statement_cache", "listen", "connect_timeout", "answer_timeout")
_OF_THE_SERVER = (
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "passfile",
    "application_name",
    "options",
    "target_session_attrs",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslrootcert",
    "sslcrl",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "krbsrvname",
    "gsslib",
)


class Address(Value):
    """The location of a store and how to connect to it."""

    url: str
    """Without the password."""
    dsn: str
    """The DSN for asyncpg; may contain the password."""
    schema: str
    pool_max: int
    """Maximum connections, besides the one for wake-ups."""
    statement_cache: int
    """Prepared statements cached per connection; 0 for PgBouncer in transaction mode."""
    is_listening: bool
    """Whether to listen for wake-ups from other processes; polling covers for missed ones."""
    connect_timeout_s: int
    answer_timeout_s: int
    """How long a statement may go unanswered before its connection is dropped."""
    is_named: bool
    """Whether the URL sets ``application_name``."""


def parse_address(url: str) -> Address:
    """Parse a URL. Raises ``InvalidStoreUrl`` for an unknown or unusable part."""
    # Messages of urllib may quote the password, so they are neither quoted nor chained.
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidStoreUrl(url=url, reason=f"it is not a valid URL; {_ENCODE}") from None
    try:
        for server in parts.netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{server}").port  # urllib checks the port only on access
    except ValueError:
        reason = f"the port is not a number from 0 to 65535; {_ENCODE}"
        raise InvalidStoreUrl(url=url, reason=reason) from None
    if not parts.netloc and not url.partition(":")[2].startswith("//"):
        raise InvalidStoreUrl(url=url, reason="two slashes follow the scheme: postgresql://")
    parts = parts._replace(scheme="postgresql")
    shown = without_password(_without_password(parts))
    if parts.fragment:
        raise InvalidStoreUrl(url=shown, reason="it has a fragment; write # as %23")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {*_OURS, *_OF_THE_SERVER})
    if unknown:
        known = ", ".join(_OURS)
        raise InvalidStoreUrl(
            url=shown, reason=f"option {unknown[0]!r} is not known; ours are {known}"
        )
    schema = options.get("schema", SCHEMA_DEFAULT)
    if not is_identifier(schema):
        raise InvalidStoreUrl(url=shown, reason=f"schema={schema!r} is not a plain name")
    passed_on = {name: value for name, value in options.items() if name in _OF_THE_SERVER}
    return Address(
        url=shown,
        dsn=urlunsplit(parts._replace(query=urlencode(passed_on, quote_via=quote))),
        schema=schema,
        pool_max=_number(shown, options, "pool", POOL_DEFAULT, 1, POOL_MAX),
        statement_cache=_number(
            shown, options, "statement_cache", STATEMENT_CACHE_DEFAULT, 0, STATEMENT_CACHE_MAX
        ),
        is_listening=_switch(shown, options, "listen"),
        connect_timeout_s=_number(
            shown, options, "connect_timeout", CONNECT_TIMEOUT_DEFAULT_S, 1, CONNECT_TIMEOUT_MAX_S
        ),
        answer_timeout_s=_number(
            shown, options, "answer_timeout", ANSWER_TIMEOUT_DEFAULT_S, 1, ANSWER_TIMEOUT_MAX_S
        ),
        is_named="application_name" in options,
    )


def place_of(address: Address) -> str:
    """Identifies the tables, regardless of user and connection options."""
    parts = urlsplit(address.dsn)
    options = dict(parse_qsl(parts.query))
    server = parts.netloc.rpartition("@")[2] or "localhost"
    where = [options.get(name, "") for name in ("host", "port", "dbname")]
    return "|".join(["postgresql", server, parts.path.strip("/"), *where, address.schema])


def _without_password(parts: SplitResult) -> str:
    user, at, server = parts.netloc.rpartition("@")
    netloc = user.partition(":")[0] + at + server
    options = parse_qsl(parts.query, keep_blank_values=True)
    secret = ("password", "sslpassword")
    query = urlencode([option for option in options if option[0] not in secret])
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _number(
    url: str, options: dict[str, str], name: str, default: int, least: int, most: int
) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidStoreUrl(
            url=url, reason=f"{name}={text!r} is not a number from {least} to {most}"
        )
    return int(text)


def _switch(url: str, options: dict[str, str], name: str) -> bool:
    text = options.get(name, "on")
    if text not in ("on", "off"):
        raise InvalidStoreUrl(url=url, reason=f"{name}={text!r} is neither on nor off")
    return text == "on"
