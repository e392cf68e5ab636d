"""``perdure dev``: workers that restart when the code changes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import click
from click.core import ParameterSource

from perdure import clock
from perdure.cli.command import (
    LOCAL_STORE,
    STORE,
    STORE_VARIABLE,
    SUPERVISED_STORE_VARIABLE,
    command,
    in_memory,
)
from perdure.cli.commands.worker import (
    ALLOW_SCRIPTS,
    GRANT,
    LIFESPAN,
    WORKER_TARGET,
    child_command,
)
from perdure.cli.output import ExitCode, echo, print_error
from perdure.cli.renderer import CliRenderer, cli_command, one_line
from perdure.cli.views.console import json_line
from perdure.client.client import AsyncClient
from perdure.diagnostics import Action
from perdure.errors import PerdureError
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES
from perdure.model.run import RunStatus
from perdure.operations.records import RunRecord
from perdure.worker.grants import Grant
from perdure.worker.lease_renewal import set_within
from perdure.worker.supervisor import (
    ProcessEnded,
    ProcessKilled,
    ProcessNotStarted,
    Supervisor,
    SupervisorEvent,
)

ENDINGS = (".py", ".yaml", ".yml", ".json")
"""Code, and flows in files."""
_LEFT_OUT = ("__pycache__", "node_modules", "site-packages")


class SourceFiles:
    """The source files below a folder, polled for changes.

    A poll costs a few microseconds per file. File notification differs by system and is not worth a
    dependency here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(_files_below(folder))

    def __len__(self) -> int:
        return len(self._seen)

    def changed(self) -> list[str]:
        """Files added, changed or removed since the last poll, as relative paths."""
        now = dict(_files_below(self._folder))
        before, self._seen = self._seen, now
        paths = (path for path in {**before, **now} if before.get(path) != now.get(path))
        return sorted(os.path.relpath(path, self._folder) for path in paths)


def _files_below(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_left_out(place, each)]
        for name in files:
            if name.endswith(ENDINGS):
                path = os.path.join(place, name)
                try:
                    state = os.stat(path)
                except OSError:  # deleted concurrently
                    continue
                yield path, (state.st_mtime_ns, state.st_size)


def _is_left_out(place: str, name: str) -> bool:
    """Whether to skip a folder: hidden ones, those of tools, and virtual environments."""
    is_environment = os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
    return name.startswith(".") or name in _LEFT_OUT or is_environment


LOOK_MAX = 200
"""How many of the newest runs each poll reads."""


class RunNews(NamedTuple):
    """A run started, or its status changed."""

    run: RunRecord
    is_new: bool


class RunWatch:
    """Detects changes of runs. The first poll reports nothing: those runs already existed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], RunStatus] | None = None

    def news(self, runs: Sequence[RunRecord]) -> Iterator[RunNews]:
        """Yield changes of runs, given newest first, in the order in which they started."""
        known, self._known = self._known, {(each.namespace, each.id): each.status for each in runs}
        if known is None:
            return None
        for run in reversed(runs):
            before = known.get((run.namespace, run.id))
            if before is None:
                yield RunNews(run, is_new=True)
            if before is not run.status and (before or run.is_ended or _has_moved(run)):
                yield RunNews(run, is_new=False)


def _has_moved(run: RunRecord) -> bool:
    """Whether a new run has already left its first status."""
    return run.status not in (RunStatus.QUEUED, RunStatus.RUNNING)


def news_text(news: RunNews) -> str:
    """One line: ``order-7 started, a run of orders@3f…``."""
    run = news.run
    if news.is_new:
        did = "queued" if run.status is RunStatus.QUEUED else "started"
        return f"{run.id} {did}, a run of {run.flow}@{run.version}"
    match run.status:
        case RunStatus.WAITING:
            explain = cli_command(Action("runs.explain", {"id": run.id}))
            return f"{run.id} waits; see {explain}"
        case RunStatus.FAILED if run.failure is not None:
            failure = one_line(f"{run.failure.type}: {run.failure.message}")
            return f"{run.id} failed at {run.failed_node}: {failure}"
        case RunStatus.RUNNING:
            return f"{run.id} continues"
        case status:
            return f"{run.id} is {status}"


LOOK_SECONDS = 0.3
"""How often files and runs are polled."""


class Found(TypedDict):
    """The flows and tasks found in the code, and the store of its worker."""

    flows: list[str]
    tasks: list[str]
    store: str | None


class DevStore(NamedTuple):
    """The store of the workers, and what else names one."""

    url: str
    source: str
    ignored: tuple[str, ...]

    @classmethod
    def choose(cls, flag: str | None, environment: str | None, code: str | None) -> DevStore:
        """The first that names a store, as for ``perdure worker``; perdure.db if none does."""
        ranked = {"--store": flag, "the code": code, STORE_VARIABLE: environment}
        named = {source: url for source, url in ranked.items() if url}
        url = next(iter(named.values()), LOCAL_STORE)
        source, *others = named or ["the default"]
        return cls(url, source, tuple(each for each in others if named[each] != url))


class DevTarget(NamedTuple):
    """How to inspect the code, and how to run workers with it."""

    look: Callable[[], Found | None]
    choose: Callable[[str | None], DevStore]
    command: Callable[[int, int], Sequence[str]]
    grace: timedelta


class Development:
    """Runs until SIGTERM or Ctrl-C; the second one stops immediately."""

    def __init__(self, store: DevStore, code: DevTarget, processes: int, *, as_json: bool) -> None:
        self._client = AsyncClient(store.url, namespace=ALL_NAMESPACES)
        self._store = store
        self._code = code
        self._processes = processes
        self._as_json = as_json
        self._files = SourceFiles(Path.cwd())
        self._runs = RunWatch()
        self._stopping = asyncio.Event()
        self._supervisor: Supervisor | None = None

    def run(self, found: Found) -> ExitCode:
        return asyncio.run(self._work(found))

    async def _work(self, found: Found) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        async with self._client:
            await self._report_runs()  # baseline: only later changes are reported
            self._report_store()
            self._report_found(found)
            following = asyncio.create_task(self._follow_runs())
            try:
                while not self._stopping.is_set():
                    await self._work_until_a_change()
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
        self._report("stopped", "stopped; nothing is lost")
        return ExitCode.OK

    async def _work_until_a_change(self) -> None:
        """Run workers with the current code, and stop them when it changes."""
        self._supervisor = Supervisor(
            self._code.command, self._processes, self._code.grace, self._report_process
        )
        working = asyncio.create_task(self._supervisor.keep_running())
        try:
            await self._usable_change()
        finally:
            if not self._stopping.is_set():  # otherwise they have been asked to stop
                self._supervisor.stop()
            await working

    async def _usable_change(self) -> None:
        while not await set_within(self._stopping, LOOK_SECONDS):
            changed = await asyncio.to_thread(self._files.changed)
            if not changed:
                continue
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            self._report("changed", f"{changed[0]}{more} changed", files=changed)
            found = await asyncio.to_thread(self._code.look)
            if found is not None:
                if self._code.choose(found["store"]).url != self._store.url:
                    self._report("store", "the code names another store; restart to use it")
                self._report_found(found)
                return
            self._report("kept", "the new code is unusable; workers keep the previous code")

    async def _follow_runs(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._report_runs()
            except PerdureError as error:
                print_error(error, CliRenderer())

    async def _report_runs(self) -> None:
        for news in self._runs.news(await self._client.runs.list(limit=LOOK_MAX)):
            run = news.run
            status = "started" if news.is_new else run.status.value
            self._report("run", news_text(news), run=run.id, flow=run.flow, status=status)

    def _stop(self) -> None:
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.stop()

    # Reporting

    def _report_store(self) -> None:
        self._report("store", f"store: {self._client.store_url}")
        for name in self._store.ignored:
            self._report(
                "ignored", f"{name} ignored: {self._store.source} names a store", name=name
            )

    def _report_found(self, found: Found) -> None:
        for found_type, names in (("flows", found["flows"]), ("tasks", found["tasks"])):
            if names:
                self._report(found_type, f"{found_type}: {', '.join(names)}", names=names)
        count = f"{self._processes} worker process{'' if self._processes == 1 else 'es'}"
        files = f"{len(self._files)} file{'' if len(self._files) == 1 else 's'}"
        self._report("workers", f"{count}, restarted when one of {files} here changes")

    def _report_process(self, event: SupervisorEvent) -> None:
        """Report unexpected events of processes."""
        match event:
            case ProcessEnded(restart_in=timedelta() as delay):
                text = f"worker process {event.pid} ended with {event.exit_code}"
                seconds = delay.total_seconds()
                self._report("ended", f"{text}; restarting in {seconds:g} s", pid=event.pid)
            case ProcessKilled():
                text = f"worker process {event.pid} did not stop in time and was killed"
                self._report("killed", text, pid=event.pid)
            case ProcessNotStarted():
                self._report("not started", f"a worker process cannot be started: {event.reason}")

    def _report(self, what: str, text: str, **fields: Any) -> None:
        now = clock.system_clock()
        if self._as_json:
            echo(json_line({"at": now, "what": what, "text": text, **fields}))
        else:
            echo(f"{now.astimezone():%H:%M:%S}  {text}")


@command(
    WORKER_TARGET,
    STORE,
    click.Option(
        ["--processes"],
        type=click.IntRange(min=1, max=64),
        default=2,
        metavar="N",
        help="Worker processes to keep running",
    ),
    click.Option(
        ["--grace"], metavar="2s", default="2s", help="Time for running jobs to finish on a restart"
    ),
    LIFESPAN,
    GRANT,
    ALLOW_SCRIPTS,
    click.Option(["--json", "as_json"], is_flag=True, help="Print a JSON line for each event"),
    click.Option(["--look"], is_flag=True, hidden=True),
)
def dev(
    target: str,
    store: str | None,
    processes: int,
    grace: str,
    lifespan: str | None,
    grants: tuple[str, ...],
    allow_scripts: bool,
    as_json: bool,
    look: bool,
) -> ExitCode | None:
    """Run workers that restart when the code changes.

    The store is that of --store, of the Worker in MODULE:NAME, or of PERDURE_STORE, in this order;
    by default perdure.db in the current directory. Code that cannot be imported is reported, and
    the workers continue with the previous code until it can.
    """
    if look:
        echo(json.dumps(_found_code(target)))
        return None
    flags = ["--json"] if as_json else []
    flags += ["--allow-scripts"] if allow_scripts else []
    flags += [f"--lifespan={lifespan}"] if lifespan else []
    for each in grants:
        Grant.parse(each)  # an invalid one is reported once, not by each process
        flags.append(f"--grant={each}")
    context = click.get_current_context()
    is_flag = context.get_parameter_source("store") is ParameterSource.COMMANDLINE
    flag, environment = (store, os.environ.get(STORE_VARIABLE)) if is_flag else (None, store)
    code = DevTarget(
        look=lambda: _looked(target),
        choose=partial(DevStore.choose, flag, environment),
        command=child_command(["--quiet", f"--grace={grace}", *flags, "--", target]),
        grace=check.span(grace, "grace"),
    )
    found = code.look()
    if found is None:
        return ExitCode.USAGE
    chosen = code.choose(found["store"])
    if chosen.url.startswith("memory:"):
        raise in_memory(chosen.url, "perdure dev")
    os.environ[SUPERVISED_STORE_VARIABLE] = chosen.url
    return Development(chosen, code, processes, as_json=as_json).run(found)


def _looked(target: str) -> Found | None:
    """Inspect the code in a new process; None, after reporting the error, if it is unusable."""
    command = [sys.executable, "-m", "perdure.cli", "dev", "--look", "--", target]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return None
    found: Found = json.loads(done.stdout)
    return found


def _found_code(target: str) -> Found:
    from perdure.cli.target import load
    from perdure.worker.worker import Worker

    found = load(target)
    flows = {text for each in found.flows for text in each.with_children()}
    tasks = sorted(each.name for each in found.tasks)
    store = found.given_url if isinstance(found, Worker) else None
    return {"flows": sorted(flows), "tasks": tasks, "store": store}


COMMANDS = {"dev": dev}
