"""What a run of chaos did and found, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.model.value import Value
from proof.chaos.nemesis import FaultRecord

FINDINGS_SHOWN = 50


class Load(Value):
    """What was done meanwhile, counted at the end."""

    runs: int
    jobs: int
    """Plain ones."""
    events: int
    executions: int
    """Bodies that began."""
    retried: int
    """Of those, the ones that failed on purpose, to be tried again."""
    paused: int
    """Those that ended to wait for an outside party."""
    repeated: int
    """Those that began once more because a process died, froze, stopped or was cut off."""


class ChaosReport(Value):
    store: str
    seed: int
    workers: int
    clients: int
    fault_seconds: float
    settle_seconds: float
    faults: tuple[FaultRecord, ...]
    """All that were tried."""
    left_out: tuple[str, ...]
    load: Load
    asked: Mapping[str, Mapping[str, int]]
    """How often each act of clients was accepted, refused and left unclear."""
    restarts: int
    failed_starts: int
    """Starts while the store could not be used; the process said so and was started again."""
    findings: tuple[str, ...]

    @property
    def survived(self) -> tuple[FaultRecord, ...]:
        """Those that hit."""
        return tuple(each for each in self.faults if each.is_hit)

    @property
    def is_good(self) -> bool:
        return not self.findings


def report_lines(report: ChaosReport) -> Iterator[str]:
    yield f"Chaos on {report.store}, seed {report.seed}"
    yield from _faults(report)
    yield from _load(report)
    yield from _asked(report)
    yield from _findings(report)


def _faults(report: ChaosReport) -> Iterator[str]:
    yield (
        f"  faults: {len(report.survived)} in {report.fault_seconds:.0f} s, on {report.workers} "
        f"worker and {report.clients} client processes, started {report.restarts} times anew "
        f"({report.failed_starts} times in vain, while the store was out of order)"
    )
    times: dict[str, list[float]] = {}
    for each in report.survived:
        times.setdefault(each.name, []).append(each.at_seconds)
    for name, at in sorted(times.items()):
        yield f"    {len(at):>3} × {name}, at {', '.join(f'{each:.0f}' for each in sorted(at))} s"
    for each in report.faults:
        if not each.is_hit:
            yield f"      - missed, and not counted: {each.name}, {each.detail}"
    for reason in report.left_out:
        yield f"      - left out: {reason}"


def _load(report: ChaosReport) -> Iterator[str]:
    load, seconds = report.load, report.fault_seconds + report.settle_seconds
    yield (
        f"  load: {load.runs} runs, {load.jobs} plain jobs, {load.executions} bodies begun, "
        f"{load.events} events in {seconds:.0f} s"
    )
    yield (
        f"    a second: {load.runs / seconds:.1f} runs, {load.jobs / seconds:.1f} plain jobs, "
        f"{load.executions / seconds:.1f} bodies, {load.events / seconds:.1f} events"
    )
    share = 100 * load.repeated / max(1, load.executions)
    yield (
        f"    bodies begun again: {load.repeated} because of faults ({share:.1f} %), "
        f"{load.retried} after failing on purpose, {load.paused} after a pause"
    )
    yield f"    settled {report.settle_seconds:.1f} s after the last fault"


def _asked(report: ChaosReport) -> Iterator[str]:
    yield "  clients were told (accepted / refused / nothing, which may mean either):"
    for act, counts in sorted(report.asked.items()):
        numbers = [counts.get(answer, 0) for answer in ("accepted", "refused", "unclear")]
        yield f"    {act:<10}{numbers[0]:>6} /{numbers[1]:>4} /{numbers[2]:>4}"


def _findings(report: ChaosReport) -> Iterator[str]:
    if report.is_good:
        yield "  nothing was lost, nothing counted twice: no findings"
        return
    yield f"  FINDINGS: {len(report.findings)}"
    for finding in report.findings[:FINDINGS_SHOWN]:
        first, *more = finding.splitlines() or [""]
        yield f"    - {first}"
        yield from (f"      {line}" for line in more)
    if len(report.findings) > FINDINGS_SHOWN:
        yield f"    - and {len(report.findings) - FINDINGS_SHOWN} more"
