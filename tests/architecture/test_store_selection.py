"""``--stores``: what each choice runs, and that together they run everything."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.architecture.source_tree import ROOT
from tests.store_selection import STORES, stores_of_test

ONE_STORE = ["tests/client/test_enqueue.py", "tests/worker/test_task_calls.py"]
EVERY_STORE = ["tests/contract/test_stores.py"]
MARKED = ["tests/worker/test_claim.py"]


@cache
def collected(stores: str, *files: str) -> frozenset[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--stores={stores}", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = frozenset(line for line in done.stdout.splitlines() if "::" in line)
    assert found or stores == "rest", done.stdout + done.stderr
    return found


def without_store(id: str) -> str:
    return re.sub(rf"\b({'|'.join(STORES)})\b", "", id)


@pytest.mark.parametrize("files", [ONE_STORE, EVERY_STORE, MARKED], ids="-".join)
def test_one_and_rest_are_disjoint_and_together_all(files: list[str]) -> None:
    one, rest = collected("one", *files), collected("rest", *files)
    assert one & rest == set()
    assert one | rest == collected("all", *files)


def test_a_test_of_clients_or_workers_runs_on_one_store() -> None:
    counts = Counter(map(without_store, collected("one", *ONE_STORE)))
    assert set(counts.values()) == {1}
    assert set(counts) == {without_store(id) for id in collected("all", *ONE_STORE)}


def test_a_contract_test_runs_on_every_store() -> None:
    assert collected("rest", *EVERY_STORE) == set()
    assert collected("one", *EVERY_STORE) == collected("all", *EVERY_STORE)


def test_the_store_of_a_test_does_not_depend_on_the_store_in_its_id() -> None:
    ids = [f"tests/client/test_x.py::test_y[{store}-1]" for store in STORES]
    chosen = {stores_of_test(id, store) for id, store in zip(ids, STORES, strict=True)}
    assert len(chosen) == 1


def test_the_stores_share_the_tests_evenly() -> None:
    ids = [f"tests/worker/test_x.py::test_{number}[memory]" for number in range(300)]
    counts = Counter(stores_of_test(id, "memory") for id in ids)
    assert min(counts[(store,)] for store in STORES) > 70
