"""What can be imported from the package."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import ModuleType

import perdure
from perdure import errors
from tests.support.public_names import PUBLIC

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there():
    assert [name for name in PUBLIC if not hasattr(perdure, name)] == []


def test_only_classes_functions_and_constants_of_ours_are_public():
    assert [name for name in PUBLIC if isinstance(getattr(perdure, name), ModuleType)] == []
    assert {"Client", "task", "CONTEXT"} <= set(dir(perdure))


def test_the_names_of_the_contract_are_public():
    named = "task Retry RetryLater Permanent Context Client AsyncClient Worker Concurrency Rate"

    assert set(named.split()) <= set(PUBLIC)


def test_only_these_errors_are_not_public():
    raised_on_workers_only = {"WorkerCrashed", "ProcessCrashed", "ValueMissing"}
    raised_by_tools = {"NotFaked", "NotSettled", "StoreInUse", "StoreNotEmpty", "InvalidExport"}
    tree = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type)
        and issubclass(value, errors.PerdureError)
        and not name.startswith("_")
    }

    assert tree - set(PUBLIC) == raised_on_workers_only | raised_by_tools


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert perdure.__version__ == project["project"]["version"]
