"""What ``module:name`` may mean, and how a wrong one is reported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import InvalidInput, Worker
from perdure.cli.target import load, load_flow, load_flows
from tests.support.refusal import refused


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in the user's folder, and forget afterwards what was imported from it."""
    before = set(sys.modules)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded_names(target: str) -> list[str]:
    found = load(target)
    assert not isinstance(found, Worker)
    return [task.name for task in found.tasks] + [flow.name for flow in found.flows]


class TestLoad:
    def test_a_worker(self):
        found = load("sample:worker")
        assert isinstance(found, Worker)
        assert found.settings.concurrency == 3

    @pytest.mark.parametrize(
        "target, names",
        [
            ("sample:add", ["add"]),
            ("sample:some_tasks", ["add", "greet"]),
            ("shop:orders", ["orders"]),
            ("shop:several", ["pack", "orders", "shipping"]),
        ],
    )
    def test_tasks_and_flows(self, target, names):
        assert loaded_names(target) == names

    def test_every_task_of_a_module_once(self):
        names = loaded_names("sample")
        assert {"add", "greet", "hold"} <= set(names)
        assert len(names) == len(set(names))

    def test_a_worker_with_flows(self):
        found = load("shop:worker")
        assert isinstance(found, Worker)
        assert [flow.name for flow in found.flows] == ["orders", "shipping"]

    def test_every_task_and_flow_of_a_module(self):
        found = load("shop")
        assert not isinstance(found, Worker)
        assert {"fetch", "bill"} <= {task.name for task in found.tasks}
        assert [flow.name for flow in found.flows] == ["shipping", "orders", "orders", "orders"]

    def test_a_name_inside_something_and_a_module_inside_a_package(self, here):
        (here / "package").mkdir()
        (here / "package" / "jobs.py").write_text(
            "from perdure import task\n"
            "class Config:\n"
            "    @staticmethod\n"
            "    @task\n"
            "    def tidy() -> None: ...\n"
        )

        assert loaded_names("package.jobs:Config.tidy") == ["tidy"]


class TestLoadFlow:
    def test_one_by_name(self):
        assert load_flow("shop:longer").name == "orders"

    def test_the_only_one_of_a_module_whatever_its_names(self, here):
        (here / "single.py").write_text("from shop import orders\nsame = orders\n")
        assert load_flow("single").name == "orders"

    def test_whose_name_is_not_that_of_its_variable_is_suggested(self, here):
        (here / "single.py").write_text("from shop import orders as same\n")
        with pytest.raises(InvalidInput, match="did you mean 'same'"):
            load_flow("single:orders")

    def test_all_that_something_has_with_those_that_they_start(self):
        for target in ("shop:orders", "shop:worker"):
            assert [flow.name for flow in load_flows(target)] == ["orders", "shipping"]


class TestWhatCannotBeLoaded:
    @pytest.mark.parametrize(
        "target, code, args",
        [
            ("nothere:worker", "cli.no_module", {"module": "nothere"}),
            ("sample.nothere", "cli.no_module", {}),
            ("sample:workers", "cli.no_attribute", {"nearest": ("worker",)}),
            ("sample:zzz", "cli.no_attribute", {"nearest": ()}),
            ("sample:nothing", "cli.not_usable", {}),
            ("shop:not_built", "cli.not_usable", {}),
            ("sample.py:worker", "cli.not_a_module", {}),
            ("sub/sample", "cli.not_a_module", {}),
            (":worker", "cli.not_a_module", {}),
        ],
    )
    def test_is_refused(self, target, code, args):
        with refused(code, InvalidInput, **args):
            load(target)

    @pytest.mark.parametrize(
        "text, code", [("x = 1", "cli.no_code"), ("import no_such", "cli.import_failed")]
    )
    def test_a_module_without_tasks_or_that_misses_another(self, here, text, code):
        (here / "bare.py").write_text(text)
        with refused(code, InvalidInput, module="bare"):
            load("bare")

    def test_a_module_that_fails_shows_its_author_where(self, here, capsys):
        (here / "broken.py").write_text("import sample\nvalue = {}['missing']\n")

        with refused(
            "cli.import_failed", InvalidInput, module="broken", reason="KeyError: 'missing'"
        ):
            load("broken")

        shown = capsys.readouterr().err
        assert 'broken.py", line 2' in shown
        assert "importlib" not in shown
