"""Shows a run: redrawn in place in a terminal, one line per event elsewhere."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from perdure.cli.output import ExitCode, error_line, print_message
from perdure.cli.renderer import CliRenderer, one_line
from perdure.cli.views.console import STYLES, json_line
from perdure.cli.views.live import CONTINUED, LIVE, Line, Look, is_silent, lines_of, waits_for
from perdure.cli.views.runs import EventLines, about
from perdure.diagnostics import Action
from perdure.model.ids import WorkerId
from perdure.model.job import CLAIMED
from perdure.model.run import NodeStatus, RunStatus, WaitType
from perdure.model.text import visible
from perdure.model.times import ago, brief
from perdure.model.value import Value
from perdure.model.worker import WorkerState, is_live
from perdure.operations.records import EventRecord, RunSnapshot
from perdure.operations.results import run_error

WIDE = 70
"""From this width on, bars and notes fit beside the nodes."""
BAR_WIDTH = 12
AMOUNT_WIDTH = 7
WORD_WIDTH = max(map(len, Look))
REMARK_LINES_MAX = 3
EVENTS_MIN, EVENTS_MAX = 2, 5
"""Maximum number of latest events shown, if there is room."""
WORKERS_MAX = 12
"""Above this, only their count is shown."""
SMALLEST_HEIGHT = 8

LOOK_STYLES: dict[Look, str] = {
    Look.TO_COME: "dim",
    Look.QUEUED: "cyan",
    Look.RUNNING: "yellow",
    Look.RETRYING: "yellow",
    Look.WAITING: "cyan",
    Look.ASKING: "bold magenta",
    Look.PAUSED: "magenta",
    Look.UNDOING: "yellow",
    Look.COMPLETED: "green",
    Look.FAILED: "bold red",
    Look.SKIPPED: "dim",
    Look.BLOCKED: "dim",
    Look.CANCELLED: "dim",
}


class Signs(Value):
    """The characters to draw with."""

    looks: dict[Look, str]
    full: str
    empty: str
    arrow: str
    alive: str
    dead: str
    more: str
    plain: bool = False

    def drawn(self, guide: str) -> str:
        return guide.translate(_PLAIN_GUIDES) if self.plain else guide


_PLAIN_GUIDES = str.maketrans("├╰│", "|`|")
UNICODE = Signs(
    looks=dict(zip(Look, "·○●↻…?‖↶✓✗––×", strict=True)),
    full="━",
    empty="─",
    arrow="→",
    alive="●",
    dead="✗",
    more="…",
)
ASCII = Signs(
    looks=dict(zip(Look, ".o*~:?=<+x--x", strict=True)),
    full="#",
    empty="-",
    arrow=">",
    alive="*",
    dead="x",
    more="...",
    plain=True,
)


class LiveView:
    """The rich renderable: a snapshot and the latest events, fitted to the terminal."""

    def __init__(
        self,
        snapshot: RunSnapshot,
        events: Sequence[EventRecord],
        *,
        options: str = "",
        footer: Sequence[Text] = (),
    ) -> None:
        self._snapshot = snapshot
        self._events = events
        self._options = options
        self._footer = footer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        signs = ASCII if options.ascii_only else UNICODE
        width = options.max_width
        footer = [part for line in self._footer for part in line.wrap(console, width)]
        height = max(SMALLEST_HEIGHT, console.size.height - 1 - len(footer))
        lines = lines_of(self._snapshot, self._options)
        yield from screen(self._snapshot, lines, self._events, (width, height), signs)
        yield from footer


def screen(
    snapshot: RunSnapshot,
    lines: Sequence[Line],
    events: Sequence[EventRecord],
    size: tuple[int, int],
    signs: Signs,
) -> list[Text]:
    """Render everything within ``size``."""
    width, height = size
    head = [_title(snapshot, width), *_workers(snapshot, width, signs), Text()]
    wanted = sum(_height(each, width) for each in lines)
    left = height - len(head) - 1
    count = min(EVENTS_MAX, len(events), max(EVENTS_MIN, left - wanted))
    tail = [_event_line(event, width) for event in list(events)[len(events) - count :]]
    gap = [Text()] if tail else []
    return [*head, *_node_lines(lines, width, left - len(tail), signs), *gap, *tail]


def _title(snapshot: RunSnapshot, width: int) -> Text:
    run = snapshot.run
    reached = snapshot.state.nodes.values()
    over = sum(node.status is not NodeStatus.LIVE for node in reached)
    line = Text()
    line.append(visible(run.id), style="bold")
    line.append(f" of {visible(run.flow)} " if width >= WIDE else " ")
    line.append(run.status.value, style=STYLES[run.status])
    line.append(f" {brief((run.finished_at or snapshot.now) - run.created_at)}")
    line.append(f", {over}/{len(snapshot.graph.nodes)} nodes", style="dim")
    return _cut(line, width)


def _workers(snapshot: RunSnapshot, width: int, signs: Signs) -> Iterator[Text]:
    """The workers, with the number of jobs of this run that each runs."""
    if snapshot.state.is_ended:
        return
    held = Counter(job.worker for job in snapshot.jobs if job.status in CLAIMED)
    shown = sorted(
        (each for each in snapshot.workers if _matters(each, snapshot, held)),
        key=lambda each: each.info.id,
    )
    alive = [each for each in shown if not is_silent(each, snapshot.now)]
    if not alive:
        yield _cut(Text("no live worker", style="red"), width)
    if len(shown) > WORKERS_MAX:
        busy = sum(bool(held[each.info.id]) for each in alive)
        yield _cut(Text(f"{len(alive)} workers, {busy} of them at this run", style="dim"), width)
        return
    parts = []
    for worker in shown:
        name = visible(worker.info.id)
        if is_silent(worker, snapshot.now):
            text = f"{signs.dead} {name} silent {ago(worker.seen_at, snapshot.now)}"
            parts.append(Text(text, style="red"))
        else:
            count = held[worker.info.id]
            work = f"{count} {'job' if count == 1 else 'jobs'}" if count else "idle"
            parts.append(Text(f"{signs.alive} {name} {work}", style="green"))
    yield from _wrapped(parts, width)


def _matters(worker: WorkerState, snapshot: RunSnapshot, held: Counter[WorkerId | None]) -> bool:
    """Whether a worker is alive, or was a moment ago."""
    return bool(held[worker.info.id]) or is_live(worker, snapshot.now, leases=4)


def _wrapped(parts: Sequence[Text], width: int) -> Iterator[Text]:
    line = Text()
    for part in parts:
        if line and cell_len(line.plain) + 2 + cell_len(part.plain) > width:
            yield _cut(line, width)
            line = Text()
        line.append_text(Text("  ") if line else Text()).append_text(part)
    if line:
        yield _cut(line, width)


# The nodes


def _node_lines(lines: Sequence[Line], width: int, room: int, signs: Signs) -> list[Text]:
    shown = fit_lines(lines, room, width)
    longest = max((cell_len(_name(each, signs)) for each in lines), default=0)
    # A narrow terminal shows only names and states.
    widest = width // 3 if width >= WIDE else width - WORD_WIDTH - AMOUNT_WIDTH - 2
    name_width = min(longest, max(12, widest))
    drawn = [text for each in shown for text in _drawn(each, name_width, width, signs)]
    hidden = Counter(each.look for each in lines if not each.is_part)
    hidden.subtract(each.look for each in shown if not each.is_part)
    if counts := ", ".join(f"{hidden[look]} {look}" for look in Look if hidden[look]):
        drawn.append(_cut(Text(f"{signs.more} and {counts}", style="dim"), width))
    return drawn


def fit_lines(lines: Sequence[Line], room: int, width: int) -> list[Line]:
    """The lines that fit: running and failed nodes, then those nearest to them.

    Items of maps are dropped first. One line is reserved for the number of hidden ones.
    """
    if sum(_height(each, width) for each in lines) <= room:
        return list(lines)
    urgent = [at for at, each in enumerate(lines) if _is_urgent(each)] or [0]
    nearness = {at: min(abs(at - other) for other in urgent) for at in range(len(lines))}
    left, kept = room - 1, set()
    for at in sorted(nearness, key=lambda at: (lines[at].is_part, nearness[at], at)):
        if (needed := _height(lines[at], width)) > left:
            break
        left -= needed
        kept.add(at)
    return [each for at, each in enumerate(lines) if at in kept]


def _is_urgent(line: Line) -> bool:
    return not line.is_part and (line.look in LIVE or line.look is Look.FAILED)


def _height(line: Line, width: int) -> int:
    return 1 + len(_remarked(line, width)) + len(_folded(line, width))


def _remarked(line: Line, width: int) -> list[str]:
    room = max(8, width - len(line.guide) - 2)
    return wrap(line.remark, room, max_lines=REMARK_LINES_MAX, placeholder=" …")


def _folded(line: Line, width: int) -> list[str]:
    """A command, wrapped: truncated it would be useless."""
    room = max(8, width - len(line.guide) - 4)
    return [line.command[at : at + room] for at in range(0, len(line.command), room)]


def _name(line: Line, signs: Signs) -> str:
    return f"{signs.drawn(line.guide)}{signs.looks[line.look]} {line.name}"


def _drawn(line: Line, name_width: int, width: int, signs: Signs) -> Iterator[Text]:
    style = LOOK_STYLES[line.look]
    guide, sign = signs.drawn(line.guide), signs.looks[line.look]
    text = Text().append(guide, style="dim").append(f"{sign} ", style=style)
    room = max(4, name_width - cell_len(text.plain))
    text.append(_sized(line.name, room, signs), style="dim" if line.look is Look.TO_COME else "")
    text.append(f" {line.look:{WORD_WIDTH}}", style=style)
    if width >= WIDE:
        text.append(" ")
        text.append_text(_bar(line, signs))
    text.append(f" {line.amount:>{AMOUNT_WIDTH}}")
    if width >= WIDE and line.note:
        text.append(f"  {line.note}", style="dim")
    text.rstrip()
    yield _cut(text, width)
    indent = f"{signs.drawn(line.guide.translate(CONTINUED))}  "
    for piece in _remarked(line, width):
        said = Text().append(indent, style="dim").append(piece, style=_remark_style(line))
        yield _cut(said, width)
    for number, piece in enumerate(_folded(line, width)):
        mark = " " if number else signs.arrow
        command = Text().append(indent, style="dim").append(f"{mark} {piece}", style="bold")
        yield _cut(command, width)


def _remark_style(line: Line) -> str:
    return "red" if line.look in (Look.FAILED, Look.RETRYING) or not line.command else ""


def _bar(line: Line, signs: Signs) -> Text:
    if line.share is None:
        return Text(" " * BAR_WIDTH)
    full = round(BAR_WIDTH * min(1.0, line.share))
    text = Text(signs.full * full, style=LOOK_STYLES[line.look])
    return text.append(signs.empty * (BAR_WIDTH - full), style="dim")


def _sized(text: str, width: int, signs: Signs) -> str:
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    end = signs.more[:1]
    return set_cell_size(text, width - len(end)) + end


# The latest events


def _event_line(event: EventRecord, width: int) -> Text:
    line = Text().append(f"{event.at.astimezone():%H:%M:%S} ", style="dim")
    line.append(event.type.replace("_", " "))
    line.append(f" {visible(event.key)}" if event.key else "", style="bold")
    line.append(f" {one_line(about(event))}".rstrip(), style="dim")
    return _cut(line, width)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line


_EXITS = {
    RunStatus.COMPLETED: ExitCode.OK,
    RunStatus.FAILED: ExitCode.REFUSED,
    RunStatus.CANCELLED: ExitCode.CANCELLED,
    RunStatus.SKIPPED: ExitCode.SKIPPED,
}
_FOR_OTHERS = (WaitType.APPROVAL, WaitType.SIGNAL, WaitType.EXTERNAL)
"""Waits that need an external action."""


class Screen(Protocol):
    """An output for snapshots of a run."""

    def show(self, snapshot: RunSnapshot) -> None: ...


class NoScreen:
    """Shows nothing."""

    def show(self, snapshot: RunSnapshot) -> None:
        pass


class PlainScreen:
    """Prints one line per event, and one per wait that needs an action."""

    def __init__(self, console: Console, options: str = "") -> None:
        self._console = console
        self._renderer = CliRenderer(options)
        self._lines = EventLines(console)
        self._announced: set[tuple[str, str]] = set()

    def show(self, snapshot: RunSnapshot) -> None:
        for event in snapshot.events:
            self._lines.print(event)
        for wait in snapshot.waits:
            place = (wait.key, wait.opened_at.isoformat())
            if wait.type in _FOR_OTHERS and place not in self._announced:
                self._announced.add(place)
                what, command = waits_for(wait, snapshot.now, self._renderer)
                line = visible(f"      {wait.key} {what}: {command}")
                self._console.print(line, soft_wrap=True)


class LiveScreen:
    """Redraws the whole run in place with every snapshot."""

    def __init__(self, live: Live, options: str = "") -> None:
        self._live = live
        self._options = options
        self._events: deque[EventRecord] = deque(maxlen=EVENTS_MAX)

    def show(self, snapshot: RunSnapshot) -> None:
        self._events.extend(snapshot.events)
        view = LiveView(snapshot, list(self._events), options=self._options)
        self._live.update(view, refresh=True)


@contextmanager
def open_screen(console: Console, options: str) -> Iterator[Screen]:
    """The screen for the current stdout."""
    if not console.is_terminal:
        yield PlainScreen(console, options)
        return
    # Drawn with each snapshot, not by a thread: nothing changes in between.
    with Live(console=console, auto_refresh=False) as live:
        yield LiveScreen(live, options)


def follow(snapshots: Iterator[RunSnapshot], shown: Screen) -> RunSnapshot:
    """Show a run until it ends; return its last snapshot."""
    for snapshot in snapshots:
        shown.show(snapshot)
    return snapshot


def print_end(console: Console, last: RunSnapshot, renderer: CliRenderer) -> ExitCode:
    record = last.run
    error = run_error(record)
    if error is None:
        duration = brief((record.finished_at or last.now) - record.created_at)
        console.print(visible(f"{record.id} is {record.status} after {duration}"), soft_wrap=True)
        console.print(f"result {json_line(last.events[-1].value)}", soft_wrap=True)
    else:
        get = renderer.action(Action("runs.get", {"id": record.id}))
        print_message(f"{error_line(error, renderer)}. See {get}")
    return exit_code_after(record.status)


def exit_code_after(status: RunStatus) -> ExitCode:
    return _EXITS[status]
