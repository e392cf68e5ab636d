"""``perdure verify``: check that a store keeps what Perdure promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.exits import ExitCode, errors_told
from perdure.cli.options import STORE_VARIABLE, JsonOption, NamespaceOption, shared_store
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES

if TYPE_CHECKING:
    from perdure.verify import Counts, Finding, VerifySettings


def verify(
    store: Annotated[
        str | None,
        typer.Argument(metavar="[STORE]", envvar=STORE_VARIABLE, help="The URL of the store."),
    ] = None,
    namespace: NamespaceOption = ALL_NAMESPACES,
    pruned: Annotated[
        bool, typer.Option("--pruned", help="Ended runs and jobs may have been pruned.")
    ] = False,
    grace: Annotated[
        str | None, typer.Option(metavar="60s", help="How late anything due may be.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a store keeps what Perdure promises.

    Replays the log of every run, decides it again, and compares the result with all that is
    stored. It only reads, also while workers run. Exits with 1 if it finds a contradiction.
    """
    from msgspec.structs import asdict

    from perdure.cli import present
    from perdure.diagnostics import as_data
    from perdure.verify import VerifySettings

    with errors_told():
        settings = VerifySettings(
            namespace=None if namespace == ALL_NAMESPACES else namespace,
            allows_pruned=pruned,
            grace=None if grace is None else check.span(grace, "--grace"),
        )
        url = shared_store(store)
        found, counts = asyncio.run(_verified(url, settings, is_told=not as_json))
    if as_json:
        fields = [as_data(finding) for finding in found]
        typer.echo(present.as_json({"findings": fields, "counts": counts}))
    else:
        # The fields of the counts are plurals: "2 runs, 1 ended run, 14 events …".
        verified = ", ".join(
            f"{count:,} {(name if count != 1 else name[:-1]).replace('_', ' ')}"
            for name, count in asdict(counts).items()
        )
        told = f"{len(found):,} finding{'' if len(found) == 1 else 's'}" if found else "no findings"
        typer.echo(f"{told} in {verified}")
    raise typer.Exit(ExitCode.REFUSED if found else ExitCode.OK)


async def _verified(
    url: str, settings: VerifySettings, *, is_told: bool
) -> tuple[list[Finding], Counts]:
    """What was found, each told as soon as it is, and how much was looked at."""
    from perdure.cli.transferring import bar
    from perdure.model.job import JobFilter
    from perdure.model.run import RunFilter
    from perdure.store.opening import store_at
    from perdure.verify import Verifier, finding_text

    store = store_at(url)
    await store.open()
    try:
        total = await store.queries.count_runs(RunFilter(namespace=settings.namespace))
        total += await store.queries.count_jobs(JobFilter(namespace=settings.namespace))
        found: list[Finding] = []
        with bar("verifying") as tell:
            verifier = Verifier(
                store, settings, on_progress=lambda counts: tell(counts.runs + counts.jobs, total)
            )
            async for finding in verifier.findings():
                found.append(finding)
                if is_told:
                    typer.echo(finding_text(finding))
    finally:
        await store.close()
    return found, verifier.counts
