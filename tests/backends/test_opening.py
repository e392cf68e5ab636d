"""Which store a URL or an object is, and whether this version of Perdure can use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncClient, Client, ContractMismatch, InvalidStoreUrl, Worker, task
from perdure.store.contract import CONTRACT_NUMBER
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import require_store, store_at


@task
def noop() -> None:
    pass


TASKS = [noop]
MODULE = """
from perdure.store.contract import CONTRACT_NUMBER
from perdure.store.memory.store import MemoryStore

class Registered(MemoryStore):
    def __init__(self, url, clock=None):
        super().__init__("memory://" + url.partition("://")[2], clock=clock)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a distribution on the path that registers a store."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(scheme: str, value: str, name: str = "shelf") -> None:
        (tmp_path / f"{name}_stores.py").write_text(MODULE)
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[perdure.stores]\n{scheme} = {value}\n")

    return add


def test_a_scheme_that_another_package_registers_is_a_store(install):
    install("shelf", "shelf_stores:Registered")
    store = store_at("shelf://work")
    assert type(store).__name__ == "Registered"
    with Client("shelf://work") as client:
        assert client.jobs.count() == 0
    Worker("shelf://work", tasks=TASKS)


def test_a_built_in_scheme_cannot_be_taken(install):
    install("memory", "shelf_stores:Registered")
    assert type(store_at("memory://work")) is MemoryStore


def reason_for_refusing(url: str) -> str:
    with pytest.raises(InvalidStoreUrl) as caught:
        store_at(url)
    return caught.value.reason


def test_an_unknown_scheme_names_what_is_installed(install):
    install("shelf", "shelf_stores:Registered")
    names = "memory, postgres, postgresql, shelf, sqlite"
    assert names in reason_for_refusing("redis://localhost")


@pytest.mark.parametrize("value", ["shelf_stores:Gone", "shelf_gone:Registered"])
def test_a_registered_store_that_cannot_be_imported_is_named(install, value):
    install("shelf", value)
    assert value in reason_for_refusing("shelf://work")


def test_a_scheme_that_two_packages_register_names_both(install):
    install("shelf", "shelf_stores:Registered")
    install("shelf", "other_stores:Registered", "other")
    reason = reason_for_refusing("shelf://work")
    assert all(each in reason for each in ("other_stores:Registered", "shelf_stores:Registered"))


async def test_read_only_commands_ask_the_store_of_another_package_too(install):
    install("shelf", "shelf_stores:Registered")
    with pytest.raises(InvalidStoreUrl):  # as of every store in memory
        await require_store("shelf://work")


@pytest.mark.parametrize("use", [Client, AsyncClient, lambda store: Worker(store, tasks=TASKS)])
@pytest.mark.parametrize("stated", [CONTRACT_NUMBER + 1, None])
def test_a_store_that_was_written_for_another_contract_is_not_opened(use, stated, monkeypatch):
    monkeypatch.setattr(MemoryStore, "contract_number", stated)
    with pytest.raises(ContractMismatch) as caught:
        use("memory://elsewhere")
    with pytest.raises(ContractMismatch):
        use(MemoryStore("memory://elsewhere"))
    assert caught.value.code == "store.contract_mismatch"
    assert (caught.value.expected, caught.value.stated) == (CONTRACT_NUMBER, stated)


def test_built_in_stores_do_not_load_the_metadata_of_packages():
    program = "import sys, perdure; perdure.Client('memory://'); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "importlib.metadata" not in done.stdout.split()
