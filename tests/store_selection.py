"""Which stores a test runs on."""

from __future__ import annotations

import re
from zlib import crc32

STORES = ("memory", "sqlite", "postgres")
ONE_STORE_EACH = ("tests/client/", "tests/worker/")
"""Their tests reach a store only through its contract, which is tested on every store by itself."""


def stores_of_test(id: str, store: str) -> tuple[str, ...]:
    """The stores that a test runs on by default; ``store`` is the one in this id of it."""
    if not id.startswith(ONE_STORE_EACH):
        return STORES
    test = re.sub(rf"\b{store}\b", "", id)
    return (STORES[crc32(test.encode()) % len(STORES)],)
