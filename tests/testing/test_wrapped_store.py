"""A wrapped store misses no method of the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from perdure.store import contract
from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.testing.wrapped_store import wrap_store

PARTS: Mapping[str, Any] = contract.PARTS


class Recorder:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.names.append(name)
        return args, kwargs


@pytest.mark.parametrize("url", ["memory://", "sqlite:///x.db", "postgresql://localhost/x"])
async def test_every_method_of_every_part_is_wrapped(url):
    recorder = Recorder()
    store = wrap_store(store_at(url), recorder)
    wanted = [
        f"{part}.{name}"
        for part, protocol in PARTS.items()
        for name in sorted(protocol.__abstractmethods__)
    ]

    for part, protocol in PARTS.items():
        for name in sorted(protocol.__abstractmethods__):
            assert await getattr(getattr(store, part), name)(1, a=2) == ((1,), {"a": 2})

    assert recorder.names == wanted


async def test_what_the_store_itself_is_asked_is_wrapped():
    recorder = Recorder()
    store = wrap_store(MemoryStore("memory://"), recorder)
    await store.now()
    assert recorder.names == ["now"]


async def test_what_is_not_awaited_is_left_as_it_is():
    plain = MemoryStore("memory://here")
    store = wrap_store(plain, Recorder())
    assert store.url == "memory://here"
    assert not inspect.iscoroutinefunction(store.subscribe)


def test_parts_are_all_that_a_store_declares():
    declared = set(Store.__annotations__) - {
        "transfer",
        "audit",
        "has_one_writer",
        "contract_number",
    }
    assert declared == set(PARTS)
