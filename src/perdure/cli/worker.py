"""``perdure worker``: run a worker, or several processes of one under a supervisor."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.exits import ExitCode, error_line, errors_told, tell_error
from perdure.cli.options import STORE_VARIABLE, StoreOption, as_names, in_memory, required

if TYPE_CHECKING:
    from perdure.worker.worker import Worker

AllowScripts = Annotated[
    bool, typer.Option("--allow-scripts", help="Execute commands of script nodes.")
]


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:NAME]",
            help="A Worker, a task, a flow or a list of those; a module alone means all in it.",
        ),
    ],
    store: StoreOption = None,
    queues: Annotated[
        str | None, typer.Option(metavar="A,B", help="The queues to serve, instead of the tasks'.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Jobs that run at once, in each process.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(metavar="NAME", help="Whose jobs.")] = None,
    tags: Annotated[
        str | None, typer.Option(metavar="A,B", help="Take only jobs whose tags are among these.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Worker processes to keep running.")
    ] = 1,
    grace: Annotated[
        str | None, typer.Option(metavar="30s", help="How long a stop lets running jobs finish.")
    ] = None,
    allow_scripts: AllowScripts = False,
    as_json: Annotated[bool, typer.Option("--json", help="Log JSON lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log only what is wrong.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log starts of jobs.")] = False,
    supervisor: Annotated[int | None, typer.Option(hidden=True)] = None,
    process: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C.

    The first signal lets running jobs finish for the grace period and gives back the rest; the
    second gives them back at once. Nothing is lost either way.

    Settings of a Worker in your module hold where no option says otherwise.
    """
    from perdure.cli.logs import log_worker, set_up_logs
    from perdure.worker.supervisor import obey

    set_up_logs(as_json=as_json, level=_level(quiet=quiet, verbose=verbose))
    log = logging.getLogger("perdure.cli")
    with errors_told(
        (lambda error, options: log.error(error_line(error, options))) if as_json else tell_error
    ):
        made = _made(target, store)
        made.adjust(
            queues=as_names(queues),
            concurrency=concurrency,
            namespace=namespace,
            tags=as_names(tags),
            grace=grace,
            allow_scripts=allow_scripts or None,
            id=None if process is None else f"{made.id}-{process}",
        )
        if processes > 1:
            flags = {"--json": as_json, "--quiet": quiet, "--verbose": verbose}
            values = {"--queues": queues, "--concurrency": concurrency, "--namespace": namespace}
            flags["--allow-scripts"] = allow_scripts
            values |= {"--tags": tags, "--grace": grace}
            _supervise(made, processes, store, [*_options(flags, values), "--", target])
            return
        if supervisor is not None:
            obey(made, supervisor)
        log_worker(made, store=made.store_url, queues=made.settings.queues)
        made.run()


def _level(*, quiet: bool, verbose: bool) -> int:
    return logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO


def _made(target: str, store: str | None) -> Worker:
    from perdure.cli.loading import load
    from perdure.worker.worker import Worker

    found = load(target)
    if not isinstance(found, Worker):
        return Worker(required(store), tasks=found.tasks, flows=found.flows)
    found.adjust(store=store or None)
    return found


def _options(flags: Mapping[str, bool], values: Mapping[str, object]) -> list[str]:
    given = [name for name, is_set in flags.items() if is_set]
    return given + [f"{name}={value}" for name, value in values.items() if value is not None]


def _supervise(worker: Worker, count: int, store: str | None, arguments: Sequence[str]) -> None:
    from perdure.cli.logs import log_supervisor
    from perdure.worker.supervisor import Supervisor

    if worker.store_url.startswith("memory:"):
        raise in_memory(worker.store_url, "--processes")
    if store:
        # Not among the arguments, where every user of the machine could read its password.
        os.environ[STORE_VARIABLE] = store

    command = child_command(arguments)
    if not Supervisor(command, count, worker.settings.grace, log_supervisor).run():
        raise typer.Exit(ExitCode.REFUSED)


def child_command(arguments: Sequence[str]) -> Callable[[int, int], list[str]]:
    """What a supervisor starts: this command, once more, by its number and its pipe."""

    def command(number: int, pipe: int) -> list[str]:
        child = [sys.executable, "-m", "perdure.cli", "worker", f"--process={number}"]
        return [*child, f"--supervisor={pipe}", *arguments]

    return command
