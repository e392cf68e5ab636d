"""The ``container`` node type with a stand-in engine that really runs processes, or with podman.

``PERDURE_TEST_PODMAN=IMAGE`` runs the tests of flows with podman too; the image needs a shell.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncClient, Flow, Grant, RunFailed
from perdure.errors import Permanent, RetryLater
from perdure.flows.built import BuiltFlow
from perdure.model.run import RunStatus
from perdure.nodes import container
from perdure.nodes.call import node_type_task
from perdure.nodes.config import config_faults
from perdure.nodes.container import Container
from tests.nodes.contexts import Scope, context
from tests.support.refusal import refused
from tests.worker.conftest import StartWorker, client, start_worker
from tests.worker.harness import until

__all__ = ["client", "start_worker"]

STAND_IN = Path(__file__).with_name("stand_in_engine.py")
PODMAN_IMAGE = os.environ.get("PERDURE_TEST_PODMAN")
ENGINES = ["stand-in", *(["podman"] if PODMAN_IMAGE else [])]
LOCAL_FILES = ["docker-archive:/tmp/x.tar", "oci:layout:latest", "dir:/etc", "oci:here"]
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
GRANTS = [Grant("KEY", tasks=["container"])]


class Engine:
    def __init__(self, command: str, image: str, folder: Path) -> None:
        self.command, self.image, self.folder = command, image, folder

    @property
    def containers(self) -> list[str]:
        found = self("ps", "--all", "--filter", "name=perdure-", "--format", "{{.Names}}")
        return found.split()

    @property
    def calls(self) -> list[list[str]]:
        """Of the stand-in."""
        return [
            json.loads(line) for line in (self.folder / "called.jsonl").read_text().split("\n")[:-1]
        ]

    def __call__(self, *arguments: str) -> str:
        return subprocess.run(
            [self.command, *arguments], check=True, capture_output=True, text=True
        ).stdout


@pytest.fixture(params=ENGINES)
def engine(request, tmp_path, monkeypatch):
    if request.param == "podman":
        found = Engine("podman", PODMAN_IMAGE or "", tmp_path)
    else:
        monkeypatch.setenv("CONTAINER_STAND_IN", str(tmp_path / "engine"))
        (tmp_path / "engine").mkdir()
        command = tmp_path / "stand-in"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {STAND_IN} "$@"\n')
        command.chmod(0o755)
        found = Engine(str(command), "any", tmp_path / "engine")
    monkeypatch.setenv(container.ENGINE_VARIABLE, found.command)
    yield found
    for each in found.containers:
        found("rm", "--force", each)


def flow(engine: Engine, script: str, *, next: Any = None, retries: int = 0, **config: Any) -> Any:
    node: dict[str, Any] = {
        "id": "work",
        "type": "container",
        "config": {
            "image": engine.image,
            "command": ["sh", "-c", script],
            "poll": "50ms",
            **config,
        },
        "retry": {"retries": retries, "first": 0},
    }
    nodes = [node]
    if next is not None:
        node["next"] = next
        nodes += [
            {"id": each, "type": "note", "config": {"text": each}}
            for each in dict.fromkeys(next.values())
            if each is not None
        ]
    return Flow.from_dict({"flow": "works", "nodes": nodes})


@pytest.fixture
def at_work(client: AsyncClient, start_worker: StartWorker) -> Any:
    async def submitted(flow: BuiltFlow, **settings: Any) -> Any:
        await start_worker(flows=[flow], allow_scripts=True, hold_off="0s", **settings)
        return await client.submit(flow)

    return submitted


async def runs(engine: Engine) -> bool:
    return any(
        json.loads(engine("container", "inspect", "--format", "{{json .State}}", each))["Status"]
        == "running"
        for each in engine.containers
    )


class TestInAFlow:
    async def test_gives_its_output_and_leaves_nothing(self, at_work, engine):
        script = """echo '{"a": "'$KEY'", "b": "'$ODD'"}'; echo oh $KEY >&2"""
        env = {"KEY": "{{ secret.KEY }}", "ODD": "a=b #"}
        work = flow(engine, script, env=env, memory="64m", pids=20, cpus=0.5)

        run = await at_work(work, secrets={"KEY": "open-sesame"}, grants=GRANTS)

        assert await run.result(30) == {
            "exit_code": 0,
            "stdout": '{"a": "***", "b": "a=b #"}\n',
            "stderr": "oh ***\n",
            "json": {"a": "***", "b": "a=b #"},
            "result": None,
        }
        assert engine.containers == []

    async def test_no_secret_is_in_a_command_line(self, at_work, engine):
        work = flow(engine, "true", env={"KEY": "{{ secret.KEY }}"})
        run = await at_work(work, secrets={"KEY": "open-sesame"}, grants=GRANTS)
        await run.result(30)
        if engine.command != "podman":
            assert "create" in [call[0] for call in engine.calls]
            assert "sesame" not in str(engine.calls)

    async def test_a_secret_in_the_command_is_refused(self, at_work, engine):
        work = flow(engine, "echo {{ secret.KEY }}")
        run = await at_work(work, secrets={"KEY": "open-sesame"}, grants=GRANTS)
        failure = await failure_of(run)
        assert failure.code == "container.secret_in_command"
        assert engine.containers == []

    @pytest.mark.parametrize(
        "script, config, end, code",
        [
            ("echo oh >&2; exit 3", {}, "3", "container.failed"),
            (FOREVER, {"timeout": "300ms"}, "timeout", "container.timed_out"),
        ],
    )
    async def test_ends_have_codes_or_ports(self, at_work, engine, script, config, end, code):
        run = await at_work(flow(engine, script, retries=1, **config))
        failure = await failure_of(run)
        assert failure.code == code
        assert ("oh" in failure.message) == (end == "3")
        attempts = [each.type for each in await run.events()].count("node_paused")
        assert (attempts, engine.containers) == (2, [])

        next = {"default": None, "odd": "told"}
        run = await at_work(flow(engine, script, next=next, exit={end: "odd"}, **config))
        assert await run.result(30) == "told"
        assert engine.containers == []

    # Podman does not tell it from any other SIGKILL where cgroups are of version 1.
    @pytest.mark.parametrize("engine", ["stand-in"], indirect=True)
    async def test_too_much_memory_is_distinguished_from_other_ends(self, at_work, engine):
        script = "exec tail /dev/zero"
        run = await at_work(flow(engine, script, memory="32m"))
        failure = await failure_of(run)
        assert failure.code == "container.out_of_memory"

        next = {"default": None, "odd": "told"}
        run = await at_work(flow(engine, script, next=next, exit={"oom": "odd"}, memory="32m"))
        assert await run.result(30) == "told"

    async def test_output_is_bounded(self, at_work, engine):
        run = await at_work(flow(engine, "echo 1 2 3 4 5 6; echo 1 2 3 4 5 6 >&2", max_bytes=6))
        output = await run.result(30)
        assert re.fullmatch("1 2[^4]*truncated: 12[^4]*", output["stdout"])
        assert re.fullmatch("[^3]*truncated: 12[^3]*5 6\n", output["stderr"])

    async def test_leaves_nothing_if_its_output_cannot_be_stored(self, at_work, engine):
        """Finding 8: its container and logs were left behind, on each run of the flow."""
        run = await at_work(flow(engine, "yes | head -c 1500000", retries=1, max_bytes=2_000_000))
        assert (await failure_of(run)).code == "payload.too_large"
        assert engine.containers == []

    @pytest.mark.parametrize("engine", ["stand-in"], indirect=True)
    async def test_fails_if_it_is_removed_before_its_output_is_read(self, at_work, engine):
        (engine.folder / "pruned").touch()
        run = await at_work(flow(engine, "sleep 0.2; echo done"))
        assert (await failure_of(run)).code == "container.gone"

    @pytest.mark.parametrize("engine", ["stand-in"], indirect=True)
    async def test_logs_without_end_are_truncated(self, at_work, engine, monkeypatch):
        """Finding 8: what it logged can be larger than an engine prints in time."""
        monkeypatch.setattr(container, "_LOGS_SECONDS", 0.5)
        (engine.folder / "endless").touch()
        run = await at_work(flow(engine, "echo 1", max_bytes=20))
        assert "truncated" in (await run.result(30))["stdout"]
        assert engine.containers == []

    async def test_is_stopped_when_its_run_is_cancelled(self, at_work, client, engine):
        run = await at_work(flow(engine, FOREVER))
        await until(lambda: runs(engine))
        await until(lambda: waits(client, run.id))

        await client.runs.cancel(run.id)

        await until(lambda: has_status(client, run.id, RunStatus.CANCELLED))
        assert engine.containers == []
        assert "node_cancelled" in [each.type for each in await run.events()]

    async def test_a_report_completes_it_and_may_choose_a_port(self, at_work, client, engine):
        next = {"default": None, "review": "told"}
        run = await at_work(flow(engine, FOREVER, next=next))
        await until(lambda: runs(engine))
        await until(lambda: waits(client, run.id))
        await client.runs.report(run.id, "work", status="completed", result=7, port="review")
        assert await run.result(30) == "told"
        assert (await run.outputs())["work"]["result"] == 7
        assert engine.containers == []

    async def test_one_that_is_gone_is_started_again(self, at_work, client, engine):
        run = await at_work(flow(engine, "sleep 2; echo done", retries=1))
        await until(lambda: waits(client, run.id))
        [first] = engine.containers
        engine("rm", "--force", first)
        assert (await run.result(30))["stdout"] == "done\n"

    async def test_is_refused_unless_scripts_are_allowed(self, client, start_worker, engine):
        work = flow(engine, "true")
        await start_worker(flows=[work])
        failure = await failure_of(await client.submit(work))
        assert failure.code == "script.not_allowed"
        assert engine.containers == []


async def failure_of(run: Any) -> Any:
    with pytest.raises(RunFailed) as caught:
        await run.result(30)
    return caught.value.failure


async def waits(client: AsyncClient, run: str) -> bool:
    return bool(await client.waits.list(run=run, type="external"))


async def has_status(client: AsyncClient, run: str, status: RunStatus) -> bool:
    return (await client.runs.get(run)).status is status


def started(engine: Engine, script: str = "true", *, is_allowed: bool = True, **config: Any) -> Any:
    given = {"image": engine.image, "command": ["sh", "-c", script], **config}
    scope = Scope(allows_scripts=is_allowed)
    return node_type_task(Container(), "flow.node")(given, context(scope))


class TestTheStart:
    def test_after_a_crash_finds_the_container(self, engine):
        first, second = started(engine), started(engine)
        assert first.checkpoint["container"] == second.checkpoint["container"]
        assert engine.containers == [first.checkpoint["container"]]

    def test_after_a_crash_before_it_ran_starts_the_container(self, engine):
        name = started(engine).checkpoint["container"]
        engine("rm", "--force", name)
        if engine.command == "podman":
            engine("create", "--name", name, engine.image, "sh", "-c", "sleep 5")
        else:
            engine("create", "--label=a", "--name", name, engine.image, "sh", "-c", "sleep 5")
        assert started(engine).checkpoint["container"] == name
        state = json.loads(engine("container", "inspect", "--format", "{{json .State}}", name))
        assert state["Status"] != "created"

    def test_of_a_command_that_is_not_there_leaves_nothing(self, engine):
        if engine.command != "podman":
            (engine.folder / "broken").touch()
            with refused("container.engine_failed", container.ContainerFailed):
                started(engine)
            (engine.folder / "broken").unlink()
            config: dict[str, Any] = {"image": "missing"}
        else:
            config = {"command": ["not-there"]}
        with refused("container.engine_failed", container.ContainerFailed):
            started(engine, **config)
        assert engine.containers == []

    def test_belongs_to_one_machine(self, engine, monkeypatch):
        checkpoint = started(engine).checkpoint
        ctx = context(Scope(allows_scripts=True))
        monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere")
        for call in (Container().poll, Container().cancel):
            with pytest.raises(RetryLater):
                call(checkpoint, ctx)

    @pytest.mark.parametrize(
        "changed, where",
        [
            ({"image": "--privileged"}, ("image",)),
            ({"image": "a b"}, ("image",)),
            ({"image": ""}, ("image",)),
            ({"image": "other"}, ("image",)),
            ({"memory": "lots"}, ("memory",)),
            ({"memory": "--volume=/:/host"}, ("memory",)),
            ({"network": "--host"}, ("network",)),
            ({"network": "container:other"}, ("network",)),
            ({"cpus": 0}, ("cpus",)),
            ({"pids": 0}, ("pids",)),
            ({"timeout": "0s"}, ("timeout",)),
            ({"poll": "-1s"}, ("poll",)),
            ({"env": {"A B": "x"}}, ("env", "A B")),
            ({"env": {"": "x"}}, ("env", "")),
            ({"exit": {"256": "x"}}, ("exit", "256")),
            ({"exit": {"oom": "{{ x }}"}}, ("exit", "oom")),
            ({"volumes": ["/:/host"]}, ("volumes",)),
        ],
    )
    def test_refuses_what_the_engine_could_misread(self, engine, changed, where):
        node_type = Container(images=[engine.image])
        config = {"image": engine.image, "command": [], **changed}
        assert [fault.where for fault in config_faults(node_type, config)] == [where]
        with pytest.raises(Permanent):
            node_type_task(node_type, "flow.node")(config, context(Scope(allows_scripts=True)))
        assert engine.containers == []

    @pytest.mark.parametrize("image", LOCAL_FILES)
    def test_reads_no_image_from_a_file(self, image):
        assert [each.code for each in config_faults(Container(), {"image": image})] == [
            "container.invalid_image"
        ]

    @pytest.mark.parametrize(
        "image",
        [
            "alpine",
            "docker:24-dind",
            "library/my_image__a:V1.2",
            "localhost:5000/a/b-c/d:latest",
            "Registry.example/team/coder@sha256:" + "a" * 64,
            "sha256:" + "0" * 64,
        ],
    )
    def test_takes_the_names_of_images(self, image):
        assert config_faults(Container(), {"image": image}) == []

    @pytest.mark.parametrize("word", ["--privileged={{", "{{", "-v/:/host{{"])
    def test_refuses_a_rendered_word_that_looks_like_a_template(self, engine, word):
        for setting in ("image", "network", "memory"):
            with pytest.raises(Permanent):
                started(engine, **{setting: word})
        assert engine.containers == []

    @pytest.mark.parametrize("value", ["a\nB=c", "a\rb", "a\x00b", "x" * 60_001])
    def test_refuses_variables_that_engines_cannot_read(self, engine, value):
        with refused("container.variable_not_passable", Permanent, variable="A"):
            started(engine, env={"A": value})
        assert engine.containers == []

    def test_needs_an_engine(self, monkeypatch):
        monkeypatch.delenv(container.ENGINE_VARIABLE, raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
        with refused("container.no_engine", Permanent):
            node_type_task(Container(), "flow.node")(
                {"image": "x"}, context(Scope(allows_scripts=True))
            )
