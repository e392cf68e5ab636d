"""The demo: start worker processes, kill one, and check the log of the run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from perdure import Client, RunHandle, clock
from perdure.cli.command import login_name
from perdure.cli.views.screen import EVENTS_MAX, LiveView, PlainScreen
from perdure.demo import flow
from perdure.demo.flow import PAGE_END
from perdure.model.job import CLAIMED, Job
from perdure.model.run import RunStatus
from perdure.model.value import Value
from perdure.operations.records import EventRecord, RunSnapshot
from perdure.render.timeline import Timeline

STOP_SECONDS = 30.0


class WorkerProcess:
    """One ``perdure worker`` and its log file."""

    def __init__(self, number: int, store: str, folder: Path) -> None:
        self.id = f"worker-{number}"
        self.log = folder / f"{self.id}.log"
        self.is_killed = False
        target = f"perdure.demo.flow:worker_{number}"
        command = [sys.executable, "-m", "perdure.cli", "worker", target]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--store", store, "--grace", "5s"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C must reach only the demo, which then stops its workers.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """Send SIGKILL: no chance to clean up."""
        self.is_killed = True
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM: it finishes its running jobs."""
        if not self.has_ended:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


TITLES = (
    "alice", "beowulf", "candide", "dracula", "emma", "faust", "germinal", "hamlet", "iliad",
    "jane-eyre", "kim", "lolly-willowes", "moby-dick", "nostromo", "odyssey", "persuasion",
    "quixote", "rebecca", "silas-marner", "tristram", "ulysses", "villette", "walden", "zadig",
)  # fmt: skip
_WORDS = (
    "the", "sea", "was", "calm", "and", "a", "lamp", "burned", "late", "over", "pages", "that",
    "nobody", "had", "read", "for", "years",
)  # fmt: skip


class BookFolder:
    """Books in a folder, and the number of words in each."""

    def __init__(self, folder: Path, count: int, pages: int) -> None:
        chance = random.Random(7)
        self.words: dict[str, int] = {}
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for title in TITLES[:count]:
            lengths = [chance.randint(150, 350) for _ in range(pages)]
            texts = [" ".join(chance.choices(_WORDS, k=length)) for length in lengths]
            (folder / f"{title}.txt").write_text(PAGE_END.join(texts), encoding="utf-8")
            self.words[title] = sum(lengths)

    @property
    def titles(self) -> list[str]:
        return list(self.words)

    def path(self, title: str) -> str:
        return str(self._folder / f"{title}.txt")


MESSAGES_MAX = 3
"""Latest messages of the demo that stay on screen."""


class DemoScreen:
    """Shows the run, redrawn in place, with the demo's messages below it.

    If stdout is not a terminal, prints one line per event and message.
    """

    def __init__(self, console: Console, live: Live | None, *, is_interactive: bool) -> None:
        self._console = console
        self._live = live
        self._is_interactive = is_interactive
        self._plain = PlainScreen(console)
        self._events: deque[EventRecord] = deque(maxlen=EVENTS_MAX)
        self._messages: deque[Text] = deque(maxlen=MESSAGES_MAX)
        self._snapshot: RunSnapshot | None = None

    def print_message(self, seconds: float, text: str) -> None:
        """Show a message of the demo."""
        if self._live is None:
            self._console.print(f"demo  {seconds:4.1f} s  {text}", soft_wrap=True)
            return
        line = Text().append(f"{seconds:4.1f} s  ", style="dim").append(text, style="bold cyan")
        self._messages.append(line)
        self._draw(self._live)

    def show(self, snapshot: RunSnapshot) -> None:
        if self._live is None:
            self._plain.show(snapshot)
            return
        self._snapshot = snapshot
        self._events.extend(snapshot.events)
        self._draw(self._live)

    def ask(self, question: str) -> bool | None:
        """Prompt for yes or no; None if not interactive."""
        if self._live is None or not self._is_interactive:
            return None
        self._live.stop()
        try:
            answer = self._console.input(Text(f"\n{question} [Y/n] ", style="bold magenta"))
        except EOFError:
            return None
        finally:
            self._live.start()
        return not answer.strip().lower().startswith("n")

    def _draw(self, live: Live) -> None:
        view: RenderableType = Text("\n").join(self._messages)
        if self._snapshot is not None:
            view = LiveView(self._snapshot, list(self._events), footer=[Text(), *self._messages])
        live.update(view, refresh=True)


@contextmanager
def demo_screen(console: Console, *, is_interactive: bool) -> Iterator[DemoScreen]:
    """The screen for the current stdout."""
    if not console.is_terminal:
        yield DemoScreen(console, None, is_interactive=False)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield DemoScreen(console, live, is_interactive=is_interactive)


_COMMITS = ("node_completed", "item_completed")


class Verdict(Value):
    """The result of checking the log of the run."""

    commits: int
    """Nodes and items with a committed result."""
    retried: int
    """Attempts that failed and were retried."""
    repeated: int
    """Attempts that were restarted because their worker was killed."""
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


class Expected(Value):
    """The expected result."""

    items: Sequence[str]
    """Keys of the map."""
    words: int


def judge(events: Sequence[EventRecord], expected: Expected) -> Verdict:
    committed = Counter(event.key for event in events if event.type in _COMMITS)
    retried = sum(event.type == "node_retried" for event in events)
    # Only results that carry the number of the attempt that produced them.
    extra = sum(
        int(event.value["attempt"]) - 1
        for event in events
        if event.type == "item_completed"
        or (event.type == "node_completed" and event.node in ("fetch_prices", "draw_cover"))
    )
    problems = [
        f"{key} was committed {count} times" for key, count in committed.items() if count > 1
    ]
    problems += [f"{key} was lost" for key in expected.items if not committed[key]]
    if [event.number for event in events] != list(range(1, len(events) + 1)):
        problems.append("the log has gaps")
    if not events or events[-1].status is not RunStatus.COMPLETED:
        problems.append("the run did not complete")
    elif (words := events[-1].value["words"]) != expected.words:
        problems.append(f"counted {words} words, but the books have {expected.words}")
    return Verdict(
        commits=sum(committed.values()),
        retried=retried,
        repeated=extra - retried,
        problems=tuple(problems),
    )


RUN = "catalogue-1"
APPROVAL = f"{RUN}:sign_off"
MAP = "count_words"
WORKERS = 3
POLL_SECONDS = 0.1


class Tempo(Value):
    """The amount of work and its pace."""

    books: int
    pages: int
    pause_seconds: float
    """After each page."""
    kill_after_items: int
    think_seconds: float
    """How long the demo waits before it answers the approval itself, if not interactive."""
    timeout_seconds: float = 120.0


NORMAL = Tempo(books=24, pages=8, pause_seconds=0.5, kill_after_items=5, think_seconds=4.0)
FAST = Tempo(books=6, pages=4, pause_seconds=0.3, kill_after_items=0, think_seconds=0.1)


class DemoResult(Value):
    """The verdict and the timeline of the run."""

    verdict: Verdict
    timeline: Timeline


class Story:
    """One run of the demo in ``folder``."""

    def __init__(self, folder: Path, tempo: Tempo, screen: DemoScreen) -> None:
        self.store = f"sqlite:///{folder / 'demo.db'}"
        self._folder = folder
        self._tempo = tempo
        self._screen = screen
        self._books = BookFolder(folder / "books", tempo.books, tempo.pages)
        self._workers: list[WorkerProcess] = []
        self._started = clock.monotonic()
        self._victim: WorkerProcess | None = None
        self._killed_at = 0.0
        self._orphans: set[str] | None = None
        self._is_taken_over = False
        self._open_since: float | None = None
        self._is_decided = False

    @property
    def seconds(self) -> float:
        return clock.monotonic() - self._started

    def play(self) -> DemoResult:
        """Run the demo and check its result."""
        with Client(self.store) as client:
            try:
                self._start_workers(client)
                run = self._follow(client)
            finally:
                for process in self._workers:
                    process.stop()
            return DemoResult(verdict=self._judge(run), timeline=run.timeline())

    def _start_workers(self, client: Client) -> None:
        self._say(f"starting {WORKERS} worker processes on a new SQLite file")
        numbers = range(1, WORKERS + 1)
        self._workers = [WorkerProcess(number, self.store, self._folder) for number in numbers]
        while len(client.workers.list()) < WORKERS:
            self._check_workers()
            time.sleep(POLL_SECONDS)
        pids = ", ".join(str(process.pid) for process in self._workers)
        self._say(f"workers are ready (pids {pids})")

    def _follow(self, client: Client) -> RunHandle:
        input = {"folder": str(self._folder / "books"), "pause": self._tempo.pause_seconds}
        run = client.submit(flow.catalogue, input, id=RUN)
        self._say(f"submitted run {RUN}: a fork, a map over {self._tempo.books} books, an approval")
        for snapshot in run.observe():
            self._screen.show(snapshot)
            self._check_workers()
            self._intervene(client, snapshot)
        return run

    def _intervene(self, client: Client, snapshot: RunSnapshot) -> None:
        """Kill a worker, wait for the takeover, and decide the approval, each at its time."""
        if self._victim is None:
            self._kill_one(snapshot)
        elif not self._is_taken_over:
            self._await_takeover(snapshot, self._victim)
        if not self._is_decided:
            self._decide(client, snapshot)

    def _kill_one(self, snapshot: RunSnapshot) -> None:
        progress = snapshot.state.maps.get(MAP)
        if progress is None or len(progress.refs) < self._tempo.kill_after_items:
            return
        victim = max(self._workers, key=lambda process: len(_just_started(process, snapshot)))
        if len(_just_started(victim, snapshot)) >= 2:
            victim.kill()
            self._victim, self._killed_at = victim, self.seconds

    def _await_takeover(self, snapshot: RunSnapshot, victim: WorkerProcess) -> None:
        if self._orphans is None:
            # No other worker can claim these before their leases expire, so they do not change yet.
            self._orphans = {job.node.key for job in _claimed_by(victim, snapshot) if job.node}
            lost = ", ".join(sorted(self._orphans)) or "nothing"
            self._say(f"killed {victim.id} (SIGKILL) while it was running {lost}")
        live = {job.node.key: job for job in snapshot.jobs if job.node}
        # Taken over once another worker runs it; a job that no longer exists has completed.
        left = [live[key] for key in self._orphans if key in live]
        if all(job.status in CLAIMED and job.worker != victim.id for job in left):
            self._is_taken_over = True
            took = self.seconds - self._killed_at
            count = len(self._orphans)
            self._say(f"other workers took over all {count} jobs {took:.1f} s after the kill")

    def _decide(self, client: Client, snapshot: RunSnapshot) -> None:
        approvals = [wait for wait in snapshot.waits if f"{RUN}:{wait.key}" == APPROVAL]
        if not approvals:
            return
        if self._open_since is None:
            self._open_since = self.seconds
            answer = self._screen.ask(approvals[0].name)
            if answer is None:
                think = self._tempo.think_seconds
                self._say(f"not interactive: approving automatically in {think:.0f} s")
                return
        elif self.seconds - self._open_since < self._tempo.think_seconds:
            return
        else:
            answer = True
        self._is_decided = True
        decision = "approve" if answer else "reject"
        client.approvals.decide(APPROVAL, decision, by=login_name() or "you", roles=["editor"])
        self._say(f"approval decided: {decision}")

    def _check_workers(self) -> None:
        if self._open_since is None and self.seconds > self._tempo.timeout_seconds:
            sys.exit(
                f"The run did not finish within {self.seconds:.0f} s. See {self._workers[0].log}"
            )
        for process in self._workers:
            if process.has_ended and not process.is_killed:
                sys.exit(f"Worker {process.id} exited unexpectedly. See {process.log}")

    def _judge(self, run: RunHandle) -> Verdict:
        items = [f"{MAP}[{item}]" for item in range(self._tempo.books)]
        words = sum(self._books.words.values())
        return judge(run.events(), Expected(items=items, words=words))

    def _say(self, text: str) -> None:
        self._screen.print_message(self.seconds, text)


def _claimed_by(process: WorkerProcess, snapshot: RunSnapshot) -> list[Job]:
    return [job for job in snapshot.jobs if job.worker == process.id and job.status in CLAIMED]


def _just_started(process: WorkerProcess, snapshot: RunSnapshot) -> list[Job]:
    """Jobs that it cannot have finished by the time it is killed."""
    return [job for job in _claimed_by(process, snapshot) if 0 < job.progress.percent <= 50]
