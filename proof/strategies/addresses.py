"""URLs of stores, with a password that nobody may tell."""

from __future__ import annotations

from hypothesis import strategies as st

from proof.strategies.naming import named
from proof.strategies.texts import odd_texts

PASSWORD = "hunter2-and-more"
_SCHEMES = ["memory", "sqlite", "postgresql", "postgres", "mysql", "file", "", "SQLITE", "http"]
_PLACES = [
    "",
    "/",
    "//",
    "///",
    "////",
    "//name",
    "///:memory:",
    "//?",
    f"//user:{PASSWORD}@127.0.0.1:1/db",
    f"//user:{PASSWORD}@127.0.0.1:99999/db",
    f"//user:{PASSWORD}@[::1/db",
    f"//user:{PASSWORD}@/db",
    f"//127.0.0.1:1/db?password={PASSWORD}",
    f"//127.0.0.1:1/db?user=me&password={PASSWORD}",
    f"//127.0.0.1:1/db?sslpassword={PASSWORD}",
    "//127.0.0.1:port/db",
    "//127.0.0.1:1,127.0.0.1:1/db",
]
_OPTIONS = [
    "schema=a",
    "schema=",
    "schema=a.b",
    'schema=a"b',
    "schema=pg_catalog",
    "prefix=p_",
    "prefix=1;DROP",
    "prefix=",
    "pool=0",
    "pool=-1",
    "pool=x",
    "pool=1e9",
    "synchronous=full",
    "synchronous=maybe",
    "connect_timeout=1",
    "connect_timeout=0",
    "statement_cache=-1",
    "listen=perhaps",
    "unknown=1",
    "=",
    "a=1&a=2",
    "%00",
    "#fragment",
]


@named
def store_urls() -> st.SearchStrategy[str]:
    """Of every kind of store and of none, most of them wrong."""
    options = st.lists(st.sampled_from(_OPTIONS), max_size=3).map("&".join)
    whole = st.tuples(st.sampled_from(_SCHEMES), st.sampled_from(_PLACES), options)
    made = whole.map(lambda parts: f"{parts[0]}:{parts[1]}{'?' if parts[2] else ''}{parts[2]}")
    return made | odd_texts()
