"""``perdure run``: begin a run of a flow, see it through, and exit as it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.exits import errors_told
from perdure.cli.options import (
    LOCAL_STORE,
    JsonOption,
    NamespaceOption,
    StoreOption,
    connected,
    options_of,
    parsed_json,
)
from perdure.cli.run_acts import OnConflict
from perdure.cli.worker import AllowScripts
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.flows.built import BuiltFlow
    from perdure.worker.worker import Worker

GRACE = "5s"
"""How long bodies may go on when the worker of this command stops; then they are given back."""


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FLOW", help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml."
        ),
    ],
    input: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="As JSON.", show_default="null")
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="ID", help="The run's id; else one is made up.")
    ] = None,
    on_conflict: Annotated[
        OnConflict,
        typer.Option(metavar="POLICY", help=f"If the id is taken: {', '.join(OnConflict)}."),
    ] = OnConflict.FAIL,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE[:NAME]", help="Of a file: where the tasks, kinds and flows are."
        ),
    ] = None,
    worker: Annotated[
        bool,
        typer.Option(
            "--worker/--no-worker",
            help="Work on it here, beside other workers, or leave it to them.",
        ),
    ] = True,
    allow_scripts: AllowScripts = False,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Begin a run of a flow and follow it to its end.

    Exits with 0 if it completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped.
    Ctrl-C leaves it: the run goes on where there is a worker, and can be watched again.
    """
    from perdure.cli.following import see_through
    from perdure.cli.loading import flow_at

    url = store or LOCAL_STORE
    with errors_told():  # before the store, which would be made for nothing
        flow = flow_at(target, app)
        value = parsed_json(input, "INPUT")
    with connected(url, namespace, is_new=True) as client:
        # Whoever else is there: the record cannot tell whether another takes all of its jobs.
        hand = _hand(flow, url, namespace, allow_scripts) if worker else None
        begun = client.submit(flow, value, id=id, on_conflict=on_conflict.value)
        with _at_work(hand):
            code = see_through(begun, options_of(url, namespace), as_json=as_json)
    raise typer.Exit(code)


def _hand(flow: BuiltFlow, url: str, namespace: str, allow_scripts: bool) -> Worker:
    """A worker for this flow alone; made first, so that a run that none can work on is not."""
    from perdure.worker.worker import Worker

    return Worker(url, flows=[flow], namespace=namespace, grace=GRACE, allow_scripts=allow_scripts)


@contextmanager
def _at_work(worker: Worker | None) -> Iterator[None]:
    """Let a worker work meanwhile. What it does not finish in its grace period it gives back."""
    if worker is None:
        yield
        return
    hand = worker.start()
    try:
        yield
    finally:
        try:
            hand.shutdown()
            if hand.stats().running:
                typer.echo(
                    f"What runs here has {GRACE} to finish; Ctrl-C gives it back at once.", err=True
                )
            hand.join()
        except KeyboardInterrupt:  # at any time from here on
            hand.shutdown(grace=0)
            hand.join()
