"""``perdure worker``: run a worker, or several processes of one under a supervisor."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from perdure.cli.command import (
    STORE,
    STORE_VARIABLE,
    SUPERVISED_STORE_VARIABLE,
    Argument,
    as_names,
    command,
    in_memory,
    renderer_for,
    required,
)
from perdure.cli.output import ExitCode, echo, error_line, exit_code_of
from perdure.cli.views.console import json_line
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError, without_password
from perdure.model import check
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.worker.worker import Worker

_log = logging.getLogger("perdure.cli")

ONLY_IN_BURSTS = declare("cli.only_in_bursts", "--max-jobs requires --burst", "Pass both")

WORKER_TARGET = Argument(
    ["target"],
    metavar="MODULE[:NAME]",
    about="A Worker, a task, a flow or a list of them; default: all in the module",
)
ALLOW_SCRIPTS = click.Option(
    ["--allow-scripts"], is_flag=True, help="Execute commands of script nodes"
)

GRANT = click.Option(
    ["--grant", "grants"],
    multiple=True,
    metavar="GRANT",
    help="Let loaded flows use a secret: SECRET,flow=FLOW,host=HOST",
)

LIFESPAN = click.Option(
    ["--lifespan"], metavar="MODULE:NAME", help="Function that opens the resources of tasks"
)


@command(
    WORKER_TARGET,
    STORE,
    click.Option(["--queues"], metavar="A,B", help="Queues to serve, instead of the tasks'"),
    click.Option(
        ["--concurrency"], type=int, metavar="N", help="Jobs that run at once, in each process"
    ),
    click.Option(["--namespace"], metavar="NAME", help="Namespace of the jobs"),
    click.Option(["--tags"], metavar="A,B", help="Take only jobs whose tags are among these"),
    click.Option(
        ["--processes"],
        type=click.IntRange(min=1, max=1024),
        default=1,
        metavar="N",
        help="Worker processes to keep running",
    ),
    click.Option(["--grace"], metavar="30s", help="Time for running jobs to finish on a stop"),
    click.Option(["--burst"], is_flag=True, help="Stop when nothing is left to do now"),
    click.Option(
        ["--max-jobs"],
        type=click.IntRange(min=1),
        metavar="N",
        help="With --burst, stop after N jobs",
    ),
    LIFESPAN,
    GRANT,
    ALLOW_SCRIPTS,
    click.Option(["--json", "as_json"], is_flag=True, help="Log JSON lines"),
    click.Option(["--quiet", "-q"], is_flag=True, help="Log only warnings and errors"),
    click.Option(["--verbose", "-v"], is_flag=True, help="Log starts of jobs too"),
    click.Option(["--supervisor"], type=int, hidden=True),
    click.Option(["--process"], type=int, hidden=True),
)
def worker(
    target: str,
    store: str | None,
    queues: str | None,
    concurrency: int | None,
    namespace: str | None,
    tags: str | None,
    processes: int,
    grace: str | None,
    burst: bool,
    max_jobs: int | None,
    lifespan: str | None,
    grants: tuple[str, ...],
    allow_scripts: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    supervisor: int | None,
    process: int | None,
) -> ExitCode | None:
    """Run jobs until SIGTERM or Ctrl-C.

    The first signal lets running jobs finish for the grace period and requeues the rest; the
    second requeues them at once. Nothing is lost either way.

    With --burst, it stops when nothing is left that it can do now, and prints how many attempts
    ended how. It then exits with 1 if a job or node failed.

    Settings of a Worker in your module apply where no option is given.
    """
    from perdure.cli.logs import log_worker, set_up_logs
    from perdure.cli.target import load_function
    from perdure.worker.grants import Grant
    from perdure.worker.supervisor import follow_supervisor

    set_up_logs(as_json=as_json, level=_level(quiet=quiet, verbose=verbose))
    try:
        flag = _store_flag(is_supervised=supervisor is not None)
        made = _made(target, flag, store)
        made.adjust(
            queues=as_names(queues),
            concurrency=concurrency,
            namespace=namespace,
            tags=as_names(tags),
            grace=grace,
            grants=[Grant.parse(each) for each in grants] or None,
            allow_scripts=allow_scripts or None,
            lifespan=None if lifespan is None else load_function(lifespan),
            id=None if process is None else f"{made.id}-{process}",
        )
        if max_jobs is not None and not burst:
            raise InvalidInput(ONLY_IN_BURSTS.fault())
        if burst and processes > 1:
            raise InvalidInput(check.EXCLUSIVE.fault(names=("--burst", "--processes")))
        if processes > 1:
            flags = {"--json": as_json, "--quiet": quiet, "--verbose": verbose}
            values = {"--queues": queues, "--concurrency": concurrency, "--namespace": namespace}
            flags["--allow-scripts"] = allow_scripts
            values |= {"--tags": tags, "--grace": grace, "--lifespan": lifespan}
            options = [*_options(flags, values), *(f"--grant={each}" for each in grants)]
            return _supervise(made, processes, flag, [*options, "--", target])
        if supervisor is not None:
            follow_supervisor(made, supervisor)
        log_worker(made, store=made.store_url, queues=made.settings.queues)
        if burst:
            return _burst(made, max_jobs, as_json=as_json)
        made.run()
    except PerdureError as error:
        if not as_json:
            raise
        _log.error(error_line(error, renderer_for(store, namespace or DEFAULT_NAMESPACE)))
        return exit_code_of(error)
    return None


def _burst(worker: Worker, max_jobs: int | None, *, as_json: bool) -> ExitCode:
    from msgspec import to_builtins

    worker.adjust(owns_process=True)
    done = to_builtins(worker.run_until_idle(max_jobs=max_jobs))
    if as_json:
        echo(json_line(done))
    else:
        counts = {name: count for name, count in done.items() if name != "is_idle" and count}
        counted = ", ".join(f"{count} {name}" for name, count in counts.items())
        echo(counted or "nothing to do")
    return ExitCode.REFUSED if done["failed"] or done["dead"] else ExitCode.OK


def _level(*, quiet: bool, verbose: bool) -> int:
    return logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO


def _store_flag(*, is_supervised: bool) -> str | None:
    """The store given with ``--store``, to this process or to its supervisor."""
    context = click.get_current_context()
    if context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        return context.params["store"] or None
    return os.environ.pop(SUPERVISED_STORE_VARIABLE, None) if is_supervised else None


def _made(target: str, flag: str | None, store: str | None) -> Worker:
    """The worker of ``target``; its store is the flag's, the code's or the environment's."""
    from perdure.cli.target import load
    from perdure.worker.worker import Worker

    found = load(target)
    if not isinstance(found, Worker):
        return Worker(required(flag or store), tasks=found.tasks, flows=found.flows)
    if flag is None and store and without_password(store) != found.store_url:
        _log.warning("%s ignored: the code names a store", STORE_VARIABLE)
    found.adjust(store=flag)
    return found


def _options(flags: Mapping[str, bool], values: Mapping[str, object]) -> list[str]:
    given = [name for name, is_set in flags.items() if is_set]
    return given + [f"{name}={value}" for name, value in values.items() if value is not None]


def _supervise(worker: Worker, count: int, store: str | None, arguments: Sequence[str]) -> ExitCode:
    from perdure.cli.logs import log_supervisor
    from perdure.worker.supervisor import KILL_MARGIN, Supervisor

    if worker.store_url.startswith("memory:"):
        raise in_memory(worker.store_url, "--processes")
    if store:
        os.environ[SUPERVISED_STORE_VARIABLE] = store

    started = child_command(arguments)
    settings, final_code = worker.settings, ExitCode.SUPERSEDED
    margin = KILL_MARGIN + settings.abort_grace
    supervisor = Supervisor(started, count, settings.grace, log_supervisor, margin, final_code)
    is_well = supervisor.run()
    if not supervisor.is_stopping:
        return final_code
    return ExitCode.OK if is_well else ExitCode.REFUSED


def child_command(arguments: Sequence[str]) -> Callable[[int, int], list[str]]:
    """The command that a supervisor starts: this one again, with its number and pipe."""

    def command(number: int, pipe: int) -> list[str]:
        child = [sys.executable, "-m", "perdure.cli", "worker", f"--process={number}"]
        return [*child, f"--supervisor={pipe}", *arguments]

    return command


COMMANDS = {"worker": worker}
