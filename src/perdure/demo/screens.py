"""The two ways to see the demo: a live picture in a terminal, a plain log anywhere else."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perdure.cli.present import STYLES
from perdure.demo.scene import Scene
from perdure.model.job import Job, Status

RUNNING_MAX = 8
EVENTS_MAX = 7
REFRESHES_PER_SECOND = 8
COUNTS_EVERY_SECONDS = 2.0


class PlainScreen:
    """One line for each thing that happens, and the counts every now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def tell(self, seconds: float, text: str) -> None:
        self._console.print(f"{seconds:6.1f} s  {text}", soft_wrap=True)

    def show(self, scene: Scene, names: dict[str, str]) -> None:
        if scene.jobs and scene.seconds >= self._counts_at:
            self._counts_at = scene.seconds + COUNTS_EVERY_SECONDS
            self.tell(scene.seconds, f"[{_counts(scene).plain}]")


class LiveScreen:
    """Counts, workers, running jobs and the latest events, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_MAX)
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_SECOND)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def tell(self, seconds: float, text: str) -> None:
        self._events.append((seconds, text))

    def show(self, scene: Scene, names: dict[str, str]) -> None:
        self._live.update(picture(scene, names, list(self._events)))


def picture(scene: Scene, names: dict[str, str], events: list[tuple[float, str]]) -> Group:
    """Everything there is to see at one moment."""
    parts: list[RenderableType] = [_total(scene), _counts(scene), Text()]
    parts += [_worker_line(scene)]
    if scene.running:
        parts += [Text(), _running(scene.running[:RUNNING_MAX], names)]
    parts += [Text(), _event_lines(events)]
    return Group(*parts)


def _total(scene: Scene) -> Table:
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True, justify="right")
    total = len(scene.jobs)
    row.add_row(
        Text("Perdure demo", style="bold"),
        ProgressBar(total=max(1, total), completed=scene.finished),
        f"{scene.finished}/{total} jobs  {scene.seconds:.0f} s",
    )
    return row


def _counts(scene: Scene) -> Text:
    words = [Text(f"{count} {status}", STYLES[status]) for status, count in scene.counts.items()]
    return Text(", ").join(words)


def _worker_line(scene: Scene) -> Table:
    table = Table.grid(padding=(0, 2))
    for worker in scene.workers:
        if worker.is_alive:
            mark, style, state = "●", "green", f"holds {worker.holds}"
        elif worker.is_killed:
            mark, style, state = "✗", "red", "killed"
        else:
            mark, style, state = "○", "dim", "stopped"
        table.add_row(Text(f"{mark} {worker.name}", style), f"pid {worker.pid}", state)
    return table


def _running(jobs: list[Job], names: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=26)
    table.add_column(ratio=1)
    table.add_column(no_wrap=True, justify="right")
    for job in jobs:
        style = STYLES[job.status] if job.status is Status.ABORTING else ""
        table.add_row(
            Text(names[job.id], style),
            ProgressBar(total=100, completed=job.progress.percent),
            f"{job.progress.percent:3.0f}%",
        )
    return table


def _event_lines(events: list[tuple[float, str]]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, justify="right", style="dim")
    table.add_column()
    for seconds, text in events:
        table.add_row(f"{seconds:.1f} s", text)
    return table
