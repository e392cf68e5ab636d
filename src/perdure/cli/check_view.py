"""What a check of the code at hand found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from rich.console import Console

from perdure.cli.present import Column
from perdure.cli.terminal import print_table
from perdure.client.checking import StrandedVersion

EXAMPLES_MAX = 3
"""How many ids, or reasons, are shown to people for each version."""


def check_fields(found: Sequence[StrandedVersion]) -> list[dict[str, Any]]:
    return [
        {
            "namespace": each.namespace,
            "flow": each.flow,
            "version": each.version,
            "count": len(each.runs),
            "nearest": each.nearest,
            "migratable": each.migratable,
            "runs": each.runs,
        }
        for each in found
    ]


def print_check(
    console: Console, found: Sequence[StrandedVersion], live: int, *, is_across: bool
) -> None:
    """``live`` is how many runs are under way, with those that were not found wanting."""
    if not live:
        console.print("no runs are under way")
        return
    if not found:
        console.print(f"the code at hand can go on with {_all(live)} under way", style="green")
        return
    print_table(console, version_columns(found, is_across=is_across))
    for each in found:
        _print_reasons(console, each)
    wanting = sum(len(each.runs) for each in found)
    console.print()
    console.print(
        f"the code at hand cannot go on with {wanting} of {live} runs under way: keep workers of "
        "their versions, or migrate them (perdure runs migrate ID --to MODULE:FLOW)",
        style="bold red",
    )


def version_columns(found: Sequence[StrandedVersion], *, is_across: bool) -> list[Column]:
    return [
        Column(title="RUNS OF", cells=[f"{each.flow}@{each.version}" for each in found]),
        Column(
            title="NAMESPACE",
            cells=[each.namespace if is_across else "" for each in found],
            rank=2,
            room_min=9,
        ),
        Column(title="COUNT", cells=[str(len(each.runs)) for each in found], is_number=True),
        Column(title="NEAREST", cells=[each.nearest or "none" for each in found]),
        Column(
            title="MIGRATABLE", cells=[_migratable(each) for each in found], rank=1, is_number=True
        ),
        Column(title="RUNS", cells=[_examples(each) for each in found], rank=3, room_min=12),
    ]


def _migratable(version: StrandedVersion) -> str:
    return "" if version.nearest is None else f"{version.migratable}/{len(version.runs)}"


def _examples(version: StrandedVersion) -> str:
    shown = ", ".join(run.id for run in version.runs[:EXAMPLES_MAX])
    return f"{shown}, …" if len(version.runs) > EXAMPLES_MAX else shown


def _print_reasons(console: Console, version: StrandedVersion) -> None:
    """Why runs of a version cannot be migrated: each reason once, with a run it is true of."""
    first: dict[str, str] = {}
    for run in version.runs:
        for reason in run.differences:
            first.setdefault(reason, run.id)
    if not first:
        return
    console.print()
    console.print(f"not to be migrated from {version.flow}@{version.version}:", style="bold")
    for reason, id in islice(first.items(), EXAMPLES_MAX):
        console.print(f"  {id}: {reason}", soft_wrap=True)
    if len(first) > EXAMPLES_MAX:
        console.print(f"  and {len(first) - EXAMPLES_MAX} more: --json has them all", style="dim")


def _all(live: int) -> str:
    return "the one run" if live == 1 else f"all {live} runs"
