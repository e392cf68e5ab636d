"""The ``container`` node type: runs an image with docker or podman and waits without a worker.

The container is created under a name that only this execution of the node has, so that a start that
is repeated after a crash finds it. The node then pauses; polls ask the engine until the container
has exited. ``cancel`` removes a container that nothing waits for any more.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from perdure import clock
from perdure.diagnostics import Fault, declare, render
from perdure.errors import ExternalFailed, InvalidInput, PerdureError, Permanent, RetryLater
from perdure.model.text import last_words, preview
from perdure.model.value import Value
from perdure.model.wait import Report, ReportStatus
from perdure.nodes.config import (
    Span,
    duration_faults,
    foreign_json,
    has_template,
    named_ports,
    port_of,
    seconds_of,
)
from perdure.nodes.script import (
    INVALID_VARIABLE,
    NOT_ALLOWED,
    OUTPUT_DEFAULT_BYTES,
    OUTPUT_MAX_BYTES,
    STDERR_MAX,
    ScriptCommand,
    ScriptExit,
    Word,
    as_word,
    environment,
    execute,
    exit_faults,
)
from perdure.tasks.context import BaseContext, Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, Pause, complete, paused

ENGINE_VARIABLE = "PERDURE_CONTAINER_ENGINE"
"""The docker or podman command of a worker; by default the first of them that is installed."""
OOM, TIMEOUT = "oom", "timeout"
"""Ends other than exit codes that may have a port."""
VARIABLE_MAX_BYTES = 60_000
"""Engines read variables as lines, which have a limit."""
STOP_SECONDS = 10
"""Between SIGTERM and SIGKILL."""

_ENGINE_SECONDS = 60.0
_CREATE_SECONDS = 3_600.0  # it may have to pull the image
_LOGS_SECONDS = 60.0  # engines keep logs of any size
_OTHER_MACHINE_DELAY = timedelta(seconds=5)
_IMAGE = re.compile(
    # Podman would read these from files of the worker: oci-archive:/path and the like.
    r"(?!(?:containers-storage|dir|docker-archive|docker-daemon|oci|oci-archive|ostree|sif|tarball):)"
    r"(?=.{1,500}\Z)"
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?/)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""A registry with its port, a repository, a tag and a digest."""
_MEMORY = re.compile(r"[1-9][0-9]{0,14}[bkmg]?", re.IGNORECASE)
_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,200}")
# Where the engine is and how it is configured.
_INHERITED = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "REGISTRY_", "XDG_")
_FORMAT = "{{json .State}}"

NO_ENGINE = declare(
    "container.no_engine",
    "neither docker nor podman is installed on this worker",
    "Install one, or name its command in PERDURE_CONTAINER_ENGINE",
)
INVALID_IMAGE = declare("container.invalid_image", "{image!r} is not the name of an image")
IMAGE_NOT_ALLOWED = declare(
    "container.image_not_allowed",
    "image {image!r} is not allowed here",
    "Add it to Container(images=...)",
)
INVALID_LIMIT = declare(
    "container.invalid_limit", "memory {memory!r} is not a number of bytes such as 512m or 2g"
)
INVALID_NETWORK = declare("container.invalid_network", "{network!r} is not the name of a network")
SECRET_IN_COMMAND = declare(
    "container.secret_in_command",
    "the command contains a secret, which every user of the machine could read",
    "Pass it in env",
)
VARIABLE_NOT_PASSABLE = declare(
    "container.variable_not_passable",
    "env {variable!r} has a line break or more than {most} bytes, which engines cannot read",
    "Encode it, or pass a reference",
)
ENGINE_FAILED = declare(
    "container.engine_failed", "{engine} {operation} failed with code {exit_code}[: {stderr}]"
)
OTHER_MACHINE = declare(
    "container.other_machine",
    "the container of this node runs on {machine!r}, which this worker cannot reach",
    "Give the node a queue that only that machine serves, or share one engine",
)
FAILED = declare("container.failed", "the container exited with code {exit_code}[: {stderr}]")
OUT_OF_MEMORY = declare(
    "container.out_of_memory",
    "the container was killed because it exceeded its memory limit[: {stderr}]",
    "Increase memory, or map 'oom' to a port with 'exit'",
)
TIMED_OUT = declare(
    "container.timed_out",
    "the container was stopped after {seconds} s[: {stderr}]",
    "Increase timeout, or map 'timeout' to a port with 'exit'",
)
GONE = declare("container.gone", "the container is gone: it was removed, or its engine was reset")


class ContainerFailed(PerdureError):
    """The container failed, or could not be started. The node's retries apply."""


class Container(NodeType):
    """Runs an image with docker or podman; a report or its exit completes the node.

    Only on workers with ``allow_scripts=True``. No worker is occupied while it runs. ``engine`` is
    the command to use, ``images`` are the only images that flows may name, and ``options`` are
    further options of its ``create`` command, such as volumes.
    """

    name = "container"
    takes_ports = True  # a report may choose one

    class Config(NodeConfig):
        image: str
        command: list[Word] = field(default_factory=list)
        """The arguments for the image. Visible to all users of the machine: no secrets here."""
        env: dict[str, Word | bool] = field(default_factory=dict)
        network: str = "none"
        cpus: Annotated[float, Meta(gt=0)] | None = None
        memory: str | None = None
        pids: Annotated[int, Meta(ge=1)] | None = None
        timeout: Span = "1h"
        """After this, the container is stopped."""
        poll: Span = "5s"
        """How often to look whether the container has exited."""
        max_bytes: Annotated[int, Meta(ge=1, le=OUTPUT_MAX_BYTES)] = OUTPUT_DEFAULT_BYTES
        """The limit for stdout and for stderr, each; the rest is dropped and marked."""
        exit: dict[str, str] = field(default_factory=dict)
        """The port to continue on, by exit code, ``oom`` or ``timeout``."""

    def __init__(
        self,
        engine: str | None = None,
        *,
        images: Sequence[str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._engine = engine
        self._images = images
        self._options = tuple(options)

    def execute(self, config: Config, ctx: Context) -> Pause:
        engine = self._engine_of(ctx)
        given = msgspec.to_builtins(config)
        if faults := [*self.faults_of(given), *self._word_faults(given)]:
            raise InvalidInput(*faults)
        words = [as_word(word) for word in config.command]
        if any(ctx.mask(word) != word for word in (config.image, *words)):
            raise Permanent(SECRET_IN_COMMAND.fault())
        # A retry gets another name; an attempt after a crash gets the same one.
        start = f"{ctx.namespace}\n{ctx.idempotency_key}\n{ctx.job_id}\n{ctx.failures}"
        name = f"perdure-{hashlib.sha256(start.encode()).hexdigest()[:32]}"
        seconds = seconds_of(config.timeout, "timeout")

        state = engine.state(name)
        if state is None:
            engine.run("create", *self._arguments(config, name, ctx), config.image, *words,
                       stdin=_variables(config.env), seconds=_CREATE_SECONDS)  # fmt: skip
            state = ContainerState(status="created")
        if state.status in ("created", "configured"):
            try:
                engine.run("start", name)
            except ContainerFailed:
                engine.remove(name)  # a retry makes another one
                raise
        checkpoint = Checkpoint(
            container=name,
            machine=_machine(),
            until=clock.system_clock().timestamp() + seconds,
            seconds=seconds,
            exit=config.exit,
            max_bytes=config.max_bytes,
        )
        return paused(msgspec.to_builtins(checkpoint), name="container", poll=config.poll)

    def poll(self, checkpoint: Any, ctx: Context) -> Report | None:
        engine = self._engine_of(ctx)
        at = _checkpoint(checkpoint)
        at.refuse_other_machine()
        state = engine.state(at.container)
        if state is None:
            return Report(status=ReportStatus.FAILED, result={"gone": True})
        is_late = clock.system_clock().timestamp() >= at.until
        if not state.has_ended and not is_late:
            return None
        end = ContainerEnd(exit_code=state.exit_code, is_oom=state.is_oom)
        if not state.has_ended:
            engine.stop(at.container)
            end = ContainerEnd(exit_code=None, is_timed_out=True)
        is_handled = end.exit_code == 0 or end.port(at.exit) is not None
        status = ReportStatus.COMPLETED if is_handled else ReportStatus.FAILED
        return Report(status=status, result=msgspec.to_builtins(end))

    def resume(self, checkpoint: Any, report: Report, ctx: Context) -> Complete:
        """Collect the output, remove the container, and complete or fail.

        The output is stored before the container is removed: a crash in between loses nothing.
        """
        engine = self._engine_of(ctx)
        at = _checkpoint(checkpoint)
        at.refuse_other_machine()
        end = _end_of(report)
        if end is None:  # a report arrived: the container is no longer needed
            engine.stop(at.container)
        try:
            stored = ctx.step(f"collect {at.container}", engine.collect, at.container, at.max_bytes)
        except InvalidInput:  # the output cannot be stored, however often it is collected
            engine.remove(at.container)
            raise
        engine.remove(at.container)
        tail = last_words(ctx.mask(str(stored["stderr"])).strip(), STDERR_MAX)
        if end is None:
            if report.status is ReportStatus.FAILED:
                if isinstance(report.result, dict) and report.result.get("gone") is True:
                    raise ContainerFailed(GONE.fault())
                raise ExternalFailed(report.error or "the container reported a failure")
            output = {"exit_code": stored["exit_code"], **_output(stored), "result": report.result}
            return complete(output, report.port)
        if stored["exit_code"] is None and not end.is_timed_out:  # gone since it was polled
            raise ContainerFailed(GONE.fault())
        port = end.port(at.exit)
        if port is None and end.is_timed_out:
            raise ContainerFailed(TIMED_OUT.fault(seconds=f"{at.seconds:g}", stderr=tail))
        if port is None and end.is_oom:
            raise ContainerFailed(OUT_OF_MEMORY.fault(stderr=tail))
        if port is None and end.exit_code != 0:
            raise ContainerFailed(FAILED.fault(exit_code=end.exit_code, stderr=tail))
        return complete(
            {"exit_code": end.exit_code, **_output(stored), "result": None}, port_of(port)
        )

    def cancel(self, checkpoint: Any, ctx: Context) -> None:
        engine = self._engine_of(ctx)
        at = _checkpoint(checkpoint)
        at.refuse_other_machine()
        engine.stop(at.container)
        engine.remove(at.container)

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return named_ports(config.get("exit"))

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        faults = [*duration_faults(config, "timeout"), *duration_faults(config, "poll")]
        words = {name: config.get(name) for name in ("image", "memory", "network")}
        faults += self._word_faults(
            {name: word for name, word in words.items() if not has_template(word)}
        )
        for variable in config.get("env") or ():
            if not _VARIABLE.fullmatch(variable):
                fault = INVALID_VARIABLE.fault(
                    ("env", variable), name=variable, variable=preview(variable)
                )
                faults.append(fault)
        return [*faults, *exit_faults(config, named=(OOM, TIMEOUT))]

    def _word_faults(self, words: Mapping[str, Any]) -> Iterator[Fault]:
        """Values that the engine could read as an option, or cannot use."""
        image, memory, network = (words.get(name) for name in ("image", "memory", "network"))
        if isinstance(image, str) and not _IMAGE.fullmatch(image):
            yield INVALID_IMAGE.fault(("image",), image=preview(image))
        elif isinstance(image, str) and self._images is not None and image not in self._images:
            yield IMAGE_NOT_ALLOWED.fault(("image",), image=image)
        if isinstance(memory, str) and not _MEMORY.fullmatch(memory):
            yield INVALID_LIMIT.fault(("memory",), memory=preview(memory))
        if isinstance(network, str) and not _NETWORK.fullmatch(network):
            yield INVALID_NETWORK.fault(("network",), network=preview(network))

    def _engine_of(self, ctx: BaseContext) -> Engine:
        if not ctx.allows_scripts:
            raise Permanent(NOT_ALLOWED.fault())
        command = self._engine or os.environ.get(ENGINE_VARIABLE)
        command = command or shutil.which("docker") or shutil.which("podman")
        if command is None:
            raise Permanent(NO_ENGINE.fault())
        return Engine(command, ctx)

    def _arguments(self, config: Config, name: str, ctx: Context) -> list[str]:
        labels = {
            "run": ctx.run_id or "",
            "node": ctx.node or "",
            "key": ctx.idempotency_key,
            "namespace": ctx.namespace,
        }
        arguments = ["--name", name, "--network", config.network]
        arguments += [f"--label=perdure.{key}={value}" for key, value in labels.items()]
        arguments += ["--security-opt", "no-new-privileges"]
        if config.cpus is not None:
            arguments += ["--cpus", f"{config.cpus:g}"]
        if config.memory is not None:  # as much swap as memory would let it exceed the limit
            arguments += ["--memory", config.memory, "--memory-swap", config.memory]
        if config.pids is not None:
            arguments += ["--pids-limit", str(config.pids)]
        # Through a pipe: other users can read neither that nor the container's variables.
        return [*arguments, *self._options, *(["--env-file", "/dev/stdin"] if config.env else [])]


class Checkpoint(Value):
    container: str
    machine: str
    until: float
    seconds: float
    exit: dict[str, str]
    max_bytes: int

    def refuse_other_machine(self) -> None:
        if self.machine != _machine():
            # Not as a failure: the next attempt may be made by a worker on that machine.
            fault = OTHER_MACHINE.fault(machine=self.machine)
            raise RetryLater(render(fault), after=_OTHER_MACHINE_DELAY)


def _checkpoint(stored: Any) -> Checkpoint:
    return msgspec.convert(stored, Checkpoint)


class ContainerEnd(Value):
    """How a container ended, in the report of a poll."""

    exit_code: int | None
    is_oom: bool = False
    is_timed_out: bool = False

    def port(self, ports: Mapping[str, str]) -> str | None:
        if self.is_timed_out:
            return ports.get(TIMEOUT)
        if self.is_oom:
            return ports.get(OOM)
        return ports.get(str(self.exit_code))


def _end_of(report: Report) -> ContainerEnd | None:
    """The exit found by a poll; None for an external report."""
    with suppress(msgspec.ValidationError):
        if isinstance(report.result, dict) and report.result.keys() == {
            "exit_code", "is_oom", "is_timed_out"
        }:  # fmt: skip
            return msgspec.convert(report.result, ContainerEnd)
    return None


def _output(stored: Mapping[str, Any]) -> dict[str, Any]:
    parsed = None
    if not stored["is_truncated"]:
        with suppress(ValueError, RecursionError):
            parsed = foreign_json(str(stored["stdout"]).encode())
    return {
        "stdout": stored["stdout"],
        "stderr": stored["stderr"],
        "json": parsed if isinstance(parsed, dict) else None,
    }


def _variables(given: Mapping[str, Word | bool]) -> bytes:
    lines = []
    for name, value in given.items():
        word = as_word(value)
        if len(word.encode()) > VARIABLE_MAX_BYTES or re.search(r"[\r\n\x00]", word):
            raise InvalidInput(
                VARIABLE_NOT_PASSABLE.fault(("env", name), variable=name, most=VARIABLE_MAX_BYTES)
            )
        lines.append(f"{name}={word}\n")
    return "".join(lines).encode()


def _machine() -> str:
    """Where containers are: a shared engine, or this machine."""
    shared = os.environ.get("DOCKER_HOST") or os.environ.get("CONTAINER_HOST")
    return shared or socket.gethostname()


class ContainerState(msgspec.Struct, rename="pascal"):
    """What this node type reads of the state in ``inspect``."""

    status: str = ""
    exit_code: int = 0
    is_oom: bool = field(default=False, name="OOMKilled")

    @property
    def has_ended(self) -> bool:
        return self.status in ("exited", "dead", "stopped")


class Engine:
    """The docker or podman command line."""

    def __init__(self, command: str, ctx: BaseContext) -> None:
        self._command = command
        self._ctx = ctx
        inherited = {key: value for key, value in os.environ.items() if key.startswith(_INHERITED)}
        self._env = {**environment({}), **inherited}

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        seconds: float = _ENGINE_SECONDS,
        output_max: int = OUTPUT_DEFAULT_BYTES,
        checks: bool = True,
        is_part_enough: bool = False,
    ) -> ScriptExit:
        """Execute a command of the engine; with ``checks``, raises if it fails.

        With ``is_part_enough``, what it printed until it was stopped counts.
        """
        command = ScriptCommand(
            argv=(self._command, *arguments),
            stdin=stdin,
            env=self._env,
            cwd=None,
            seconds=seconds,
            output_max=output_max,
        )
        ending = execute(command, self._ctx.abort_signal, self._ctx.mask)
        self._ctx.check()
        engine, operation = os.path.basename(self._command), arguments[0]
        if ending.is_timed_out:
            if is_part_enough:
                return ending
            raise TimeoutError(f"{engine} {operation} did not end within {seconds:g} s")
        if checks and ending.exit_code != 0:
            stderr = last_words(self._ctx.mask(ending.stderr.text).strip(), STDERR_MAX)
            raise ContainerFailed(
                ENGINE_FAILED.fault(
                    engine=engine, operation=operation, exit_code=ending.exit_code, stderr=stderr
                )
            )
        return ending

    def state(self, name: str) -> ContainerState | None:
        """The state of a container; None if there is none of this name."""
        inspect = ("container", "inspect", "--format", _FORMAT, name)
        found = self.run(*inspect, checks=False)
        if found.exit_code != 0:
            # The exit code is the same for a missing container and an engine that does not answer.
            listed = self.run("ps", "--all", "--filter", f"name={name}", "--format", "{{.Names}}")
            if not listed.stdout.text.strip():
                return None
            found = self.run(*inspect)
        return msgspec.json.decode(found.stdout.text, type=ContainerState)

    def stop(self, name: str) -> None:
        """Stop a container, if it is there and runs."""
        state = self.state(name)
        if state is not None and not state.has_ended and state.status != "created":
            self.run("stop", "-t", str(STOP_SECONDS), name)

    def remove(self, name: str) -> None:
        if self.state(name) is not None:
            self.run("rm", "--force", name)

    def collect(self, name: str, max_bytes: int) -> dict[str, Any]:
        """The exit code and the bounded output of a container that has ended."""
        state = self.state(name)
        if state is None:
            return {"exit_code": None, "stdout": "", "stderr": "", "is_truncated": False}
        found = self.run(
            "logs", name, seconds=_LOGS_SECONDS, output_max=max_bytes, is_part_enough=True
        )
        return {
            "exit_code": state.exit_code,
            "stdout": self._ctx.mask(found.stdout.text),
            "stderr": self._ctx.mask(found.stderr.text),
            "is_truncated": found.stdout.is_truncated or found.is_timed_out,
        }
