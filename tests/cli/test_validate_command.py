"""``perdure flows validate``: all that is wrong with flows in files."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import Flow, Worker
from perdure.flows.yaml.schema import published_schema
from perdure.model.ids import WorkerId
from perdure.model.worker import WorkerInfo
from perdure.operations.page import PAGE_MAX
from perdure.store.opening import store_at
from tests.cli import sample_flows
from tests.cli.test_errors import assert_told

MODULE = "tests.cli.sample_flows"

GOOD = """\
flow: shop
nodes:
  - {id: fetch, task: fetch, next: call}
  - id: call
    type: http
    inputs: {number: fetch.output.number, token: secret.API}
    config:
      url: https://example.org/{{ number }}
      headers: {Authorization: "{{ token }}"}
    next: pack
  - {id: pack, task: pack, inputs: {line: call.output}}
"""
BAD = """\
flow: shop
nodes:
  - {id: fetch, task: fetch, next: pak}
  - {id: pack, task: pack, inputs: {lin: input}}
"""


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as working directory, with one good and one bad file."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PERDURE_SECRET_API", raising=False)
    (folder / "good.yaml").write_text(GOOD, encoding="utf-8")
    (folder / "bad.yaml").write_text(BAD, encoding="utf-8")
    return folder


def test_a_good_file_is_told_with_what_it_needs(perdure, here):
    done = perdure("flows", "validate", "good.yaml")

    assert done.exit_code == 0
    assert done.out.splitlines() == [
        "good.yaml warning secret 'API' is not in this environment: PERDURE_SECRET_API",
        "good.yaml ok shop, 3 nodes",
        "  not checked: fetch, pack",
        "  secrets: API",
        "1 file, 0 errors, 1 warning",
    ]


def test_with_the_code_at_hand_the_version_is_known(perdure, here):
    done = perdure("flows", "validate", "good.yaml", "--app", MODULE)

    version = Flow.from_yaml(GOOD, tasks=[sample_flows.fetch, sample_flows.pack]).version
    assert done.exit_code == 0
    assert f"good.yaml ok shop@{version}, 3 nodes" in done.out
    assert "  tasks: fetch, pack" in done.out
    assert "not checked" not in done.out


def test_every_fault_has_its_line_and_column(perdure, here):
    done = perdure("flows", "validate", "bad.yaml", "good.yaml", "--app", MODULE)

    assert done.exit_code == 1
    assert done.out.splitlines()[:3] == [
        "bad.yaml:3:30 error node 'fetch': unknown node 'pak'; did you mean 'pack'?",
        "bad.yaml:4:16 error node 'pack': task 'pack' has no parameter 'lin'; did you mean 'line'?",
        "bad.yaml:4:16 error node 'pack': task 'pack' needs 'line', which is not among 'lin'",
    ]
    assert done.out.splitlines()[-1] == "2 files, 3 errors, 1 warning"


def test_without_the_code_arguments_are_not_checked(perdure, here):
    done = perdure("flows", "validate", "bad.yaml")

    assert done.exit_code == 1
    assert done.out.splitlines()[-1] == "1 file, 1 error"


def test_tasks_that_are_not_there_are_errors_with_the_code_at_hand(perdure, here):
    (here / "f.yaml").write_text("{flow: f, nodes: [{id: a, task: fetsh}]}", encoding="utf-8")

    done = perdure("flows", "validate", "f.yaml", "--app", MODULE)

    assert done.exit_code == 1
    assert "f.yaml:1:27 error node 'a': unknown task 'fetsh'; did you mean 'fetch'?" in done.out


def test_flows_that_it_starts_are_those_of_the_code(perdure, here):
    text = "{flow: f, nodes: [{id: a, type: flow, config: {flow: shipping}}]}"
    (here / "f.yaml").write_text(text, encoding="utf-8")

    known, unknown = (
        perdure("flows", "validate", "f.yaml", "--app", MODULE),
        perdure("flows", "validate", "f.yaml"),
    )

    version = Flow("f").flow(sample_flows.shipping, name="a").build().version
    assert f"f.yaml ok f@{version}, 1 node" in known.out
    assert "  not checked: shipping" in unknown.out


def test_kinds_are_those_of_the_module(perdure, here):
    (here / "own_kinds.py").write_text(
        "from perdure import task\n"
        "from perdure.tasks.node_type import NodeConfig, NodeType\n"
        "@task\n"
        "def fetch(x): ...\n"
        "class Shout(NodeType):\n"
        "    name = 'shout'\n"
        "    class Config(NodeConfig):\n"
        "        text: str\n"
        "    def execute(self, config, ctx):\n"
        "        return config.text.upper()\n",
        encoding="utf-8",
    )
    text = "{flow: f, nodes: [{id: a, type: shout, config: {text: hey}}]}"
    (here / "f.yaml").write_text(text, encoding="utf-8")

    assert perdure("flows", "validate", "f.yaml", "--app", "own_kinds").exit_code == 0
    assert "unknown node type 'shout'" in perdure("flows", "validate", "f.yaml").out


class TestSecrets:
    def test_that_are_set_are_not_told(self, perdure, here, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_API", "12345")

        done = perdure("flows", "validate", "good.yaml", "--strict")

        assert done.exit_code == 0
        assert "warning" not in done.out
        assert "12345" not in done.out

    def test_that_are_missing_are_errors_if_one_is_strict(self, perdure, here):
        done = perdure("flows", "validate", "good.yaml", "--strict")

        assert done.exit_code == 1
        assert "good.yaml error secret 'API' is not in this environment" in done.out


class TestWorkers:
    def test_that_have_not_the_tasks_make_errors(self, perdure, here, url, client):
        client.queues.list()  # so that there is a store

        done = perdure("flows", "validate", "good.yaml", "--store", url)

        assert done.exit_code == 1
        assert "good.yaml error no live worker registers task 'fetch'" in done.out

    def test_that_have_the_tasks_make_none(self, perdure, here, url, client):
        handle = Worker(url, tasks=[sample_flows.fetch, sample_flows.pack]).start()
        try:
            done = perdure("flows", "validate", "good.yaml", "--store", url)
        finally:
            handle.shutdown()
            assert handle.join(30)

        assert done.exit_code == 0

    def test_are_all_asked(self, perdure, here, url, client):
        asyncio.run(register(url, [*(info(f"w{n}") for n in range(PAGE_MAX)), info("z", TASKS)]))

        done = perdure("flows", "validate", "good.yaml", "--store", url)

        assert client.workers.list().next is not None
        assert done.exit_code == 0

    def test_that_are_silent_do_not_count(self, perdure, here, url, client):
        asyncio.run(register(url, [info("killed", TASKS, lease=timedelta(microseconds=1))]))

        done = perdure("flows", "validate", "good.yaml", "--store", url)

        assert done.exit_code == 1
        assert "no live worker registers task 'fetch'" in done.out

    def test_that_have_the_flow_make_none(self, perdure, here, url, working):
        (here / "orders.yaml").write_text(sample_flows.orders.to_yaml(), encoding="utf-8")

        known = perdure("flows", "validate", "orders.yaml", "--store", url, "--app", MODULE)
        unknown = perdure("flows", "validate", "orders.yaml", "--store", url)

        assert (known.exit_code, unknown.exit_code) == (0, 0)
        assert "warning workers have flow 'orders'" in unknown.out

    def test_cannot_be_asked_where_there_is_no_store(self, perdure, here):
        done = perdure("flows", "validate", "good.yaml", "--store", "sqlite:///nowhere.db")

        assert done.exit_code == 3


def test_json_has_everything(perdure, here):
    good, bad = perdure("flows", "validate", "good.yaml", "bad.yaml", "--json").json

    assert good == {
        "file": "good.yaml",
        "ok": True,
        "flow": "shop",
        "version": None,
        "nodes": 3,
        "tasks": ["fetch", "pack"],
        "unchecked": ["fetch", "pack"],
        "secrets": ["API"],
        "errors": [],
        "warnings": ["secret 'API' is not in this environment: PERDURE_SECRET_API"],
    }
    assert bad["ok"] is False
    assert bad["errors"] == [
        {
            "code": "flow.unknown_node",
            "file": "bad.yaml",
            "line": 3,
            "column": 30,
            "node": "fetch",
            "message": "unknown node 'pak'; did you mean 'pack'?",
        }
    ]


@pytest.mark.parametrize(
    "content, told",
    [
        (b"", "empty.yaml:1:1 error the file is empty"),
        (b"\xff", "empty.yaml error is not UTF-8"),
        (b"a: [", "empty.yaml:1:1 error not valid YAML"),
    ],
)
def test_files_that_are_no_flows_are_errors(perdure, here, content, told):
    (here / "empty.yaml").write_bytes(content)

    done = perdure("flows", "validate", "empty.yaml")

    assert done.exit_code == 1
    assert done.out.startswith(told)


def test_a_file_that_is_not_there_is_an_error(perdure, here):
    done = perdure("flows", "validate", "none.yaml")

    assert done.exit_code == 1
    assert done.out.startswith("none.yaml error cannot be read: No such file")


def test_no_file_at_all_cannot_be_understood(perdure, here):
    done = perdure("flows", "validate")

    assert_told(done, 2, "FILE is required")


def test_the_schema_is_printed_for_editors(perdure):
    done = perdure("flows", "validate", "--schema")

    assert done.exit_code == 0
    assert done.out == published_schema()
    assert json.loads(done.out)["title"] == "A flow of Perdure"


TASKS = (sample_flows.fetch.name, sample_flows.pack.name)


def info(
    id: str, tasks: tuple[str, ...] = (), lease: timedelta = timedelta(minutes=1)
) -> WorkerInfo:
    return WorkerInfo(
        id=WorkerId(id),
        namespace="default",
        host="here",
        pid=1,
        queues=("default",),
        tasks=tasks,
        tags=None,
        concurrency=1,
        lease=lease,
    )


async def register(url: str, infos: list[WorkerInfo]) -> None:
    store = store_at(url)
    await store.open()
    for each in infos:
        await store.maintenance.register_worker(each)
    await store.close()
