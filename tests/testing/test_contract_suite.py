"""The contract tests as the author of another store uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import secrets

import pytest

from perdure.store.memory.store import MemoryStore
from perdure.testing.contract import Harness


class MisplacedStore(MemoryStore):
    url = "elsewhere://"


class AnotherHarness(Harness):
    def __init__(self, url):
        self.url = url

    def store(self, clock=None):
        return MisplacedStore(self.url, clock=clock)


@pytest.fixture
def harness():
    return AnotherHarness(f"memory://{secrets.token_hex(8)}")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_contract.py").write_text("from perdure.testing.contract.suite import *\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    return tmp_path


def run(project: Path, selected: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:randomly", "-k", selected],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_skips_what_the_harness_does_not_declare_and_names_it(project: Path) -> None:
    output = run(
        project, "TestAuditLimits or TestTransferImportRows or TestInsertingInATransaction"
    )
    assert "1 passed" not in output
    for capability in ("audit", "caller_transaction", "transfer"):
        assert f"the harness does not declare the capability '{capability}'" in output


def test_a_failure_shows_the_values(project: Path) -> None:
    output = run(project, "TestUrl and clone")
    assert "1 failed" in output
    assert "== 'elsewhere://'" in output


def test_the_package_loads_neither_the_suite_nor_pytest() -> None:
    program = """
import json, sys
import perdure, perdure.testing
unwanted = ("pytest", "perdure.testing.contract")
print(json.dumps([name for name in sys.modules if name.startswith(unwanted)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout) == []
