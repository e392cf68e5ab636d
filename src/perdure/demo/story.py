"""What happens in the demo, in order: a run begins, a worker is killed, somebody says yes."""

from __future__ import annotations

import time
from pathlib import Path

from perdure import Client, RunHandle, clock
from perdure.cli.options import login_name
from perdure.client.run_sights import RunSight
from perdure.demo import tasks
from perdure.demo.crew import WorkerProcess
from perdure.demo.library import Library
from perdure.demo.stage import Stage
from perdure.demo.verdict import Expected, Verdict, judge
from perdure.model.job import HELD, Job
from perdure.model.value import Value
from perdure.pictures.timeline import Timeline

RUN = "catalogue-1"
APPROVAL = f"{RUN}:sign_off"
MAP = "count_words"
WORKERS = 3
LOOK_SECONDS = 0.1


class Tempo(Value):
    """How much work there is, and how fast it goes."""

    books: int
    pages: int
    pause_seconds: float
    """After each page."""
    kill_after_items: int
    think_seconds: float
    """How long an approval is open before the demo answers it, where nobody can be asked."""
    patience_seconds: float = 120.0


NORMAL = Tempo(books=24, pages=8, pause_seconds=0.5, kill_after_items=5, think_seconds=4.0)
FAST = Tempo(books=6, pages=4, pause_seconds=0.3, kill_after_items=0, think_seconds=0.1)


class Ending(Value):
    """What is left to be told."""

    verdict: Verdict
    timeline: Timeline


class OutOfPatience(Exception):
    """The run did not end in time, which it always should."""


class Story:
    """One run of the demo in ``folder``."""

    def __init__(self, folder: Path, tempo: Tempo, stage: Stage) -> None:
        self.store = f"sqlite:///{folder / 'demo.db'}"
        self._folder = folder
        self._tempo = tempo
        self._stage = stage
        self._library = Library(folder / "books", tempo.books, tempo.pages)
        self._crew: list[WorkerProcess] = []
        self._began = clock.monotonic()
        self._victim: WorkerProcess | None = None
        self._killed_at = 0.0
        self._orphans: set[str] | None = None
        self._is_taken_over = False
        self._open_since: float | None = None
        self._is_decided = False

    @property
    def seconds(self) -> float:
        return clock.monotonic() - self._began

    def play(self) -> Ending:
        """From the start to the end, and what to think of it."""
        with Client(self.store) as client:
            try:
                self._hire(client)
                run = self._follow(client)
            finally:
                for process in self._crew:
                    process.stop()
            return Ending(verdict=self._judge(run), timeline=run.timeline())

    def _hire(self, client: Client) -> None:
        self._tell(f"starting {WORKERS} worker processes on a new SQLite file")
        numbers = range(1, WORKERS + 1)
        self._crew = [WorkerProcess(number, self.store, self._folder) for number in numbers]
        while len(client.workers()) < WORKERS:
            self._check_on_crew()
            time.sleep(LOOK_SECONDS)
        pids = ", ".join(str(process.pid) for process in self._crew)
        self._tell(f"they are ready: processes {pids}")

    def _follow(self, client: Client) -> RunHandle:
        asked = {"folder": str(self._folder / "books"), "pause": self._tempo.pause_seconds}
        run = client.submit(tasks.catalogue, asked, id=RUN)
        self._tell(f"submitted {RUN}: a fork, a map over {self._tempo.books} books, an approval")
        for sight in run.sights():
            self._stage.show(sight)
            self._check_on_crew()
            self._direct(client, sight)
        return run

    def _direct(self, client: Client, sight: RunSight) -> None:
        """Do what comes next, once its time has come."""
        if self._victim is None:
            self._kill_one(sight)
        elif not self._is_taken_over:
            self._await_takeover(sight, self._victim)
        if not self._is_decided:
            self._decide(client, sight)

    def _kill_one(self, sight: RunSight) -> None:
        progress = sight.state.maps.get(MAP)
        if progress is None or len(progress.refs) < self._tempo.kill_after_items:
            return
        victim = max(self._crew, key=lambda process: len(_just_begun(process, sight)))
        if len(_just_begun(victim, sight)) >= 2:
            victim.kill()
            self._victim, self._killed_at = victim, self.seconds

    def _await_takeover(self, sight: RunSight, victim: WorkerProcess) -> None:
        if self._orphans is None:
            # Nobody else may touch these before their leases run out, so the record stands still.
            self._orphans = {job.node.key for job in _held_by(victim, sight) if job.node}
            lost = ", ".join(sorted(self._orphans)) or "nothing"
            self._tell(f"{victim.id} got SIGKILL while it worked on {lost}")
        there = {job.node.key: job for job in sight.jobs if job.node}
        waiting = [key for key in self._orphans if _is_orphaned(there.get(key), victim)]
        if not waiting:
            self._is_taken_over = True
            took = self.seconds - self._killed_at
            count = len(self._orphans)
            self._tell(f"{count} of {count} taken over by others, {took:.1f} s after the kill")

    def _decide(self, client: Client, sight: RunSight) -> None:
        asked = [wait for wait in sight.waits if f"{RUN}:{wait.key}" == APPROVAL]
        if not asked:
            return
        if self._open_since is None:
            self._open_since = self.seconds
            answer = self._stage.ask(asked[0].name)
            if answer is None:
                think = self._tempo.think_seconds
                self._tell(f"nobody is asked here: approving by itself in {think:.0f} s")
                return
        elif self.seconds - self._open_since < self._tempo.think_seconds:
            return
        else:
            answer = True
        self._is_decided = True
        decision = "approve" if answer else "reject"
        client.decide(APPROVAL, decision, by=login_name() or "you", roles=["editor"])
        self._tell(f"decided: {decision}")

    def _check_on_crew(self) -> None:
        if self._open_since is None and self.seconds > self._tempo.patience_seconds:
            raise OutOfPatience(f"the run has not ended after {self.seconds:.0f} s")
        for process in self._crew:
            if process.has_ended and not process.is_killed:
                raise OutOfPatience(f"{process.id} ended by itself; see {process.log}")

    def _judge(self, run: RunHandle) -> Verdict:
        items = [f"{MAP}[{item}]" for item in range(self._tempo.books)]
        words = sum(self._library.words.values())
        return judge(run.events(), Expected(items=items, words=words))

    def _tell(self, text: str) -> None:
        self._stage.tell(self.seconds, text)


def _held_by(process: WorkerProcess, sight: RunSight) -> list[Job]:
    return [job for job in sight.jobs if job.worker == process.id and job.status in HELD]


def _just_begun(process: WorkerProcess, sight: RunSight) -> list[Job]:
    """What it cannot have finished by the time that it is killed."""
    return [job for job in _held_by(process, sight) if 0 < job.progress.percent <= 50]


def _is_orphaned(job: Job | None, victim: WorkerProcess) -> bool:
    """Whether nobody has begun it again; one that is not there any more is done."""
    return job is not None and (job.status not in HELD or job.worker == victim.id)
