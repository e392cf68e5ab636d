"""What happens in the demo, in order: work is enqueued, a worker is killed, a job is aborted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from perdure import Client, JobHandle, clock
from perdure.demo import tasks
from perdure.demo.crew import WorkerProcess
from perdure.demo.library import Library
from perdure.demo.scene import Scene, WorkerSight, changes
from perdure.demo.verdict import Expected, Verdict, judge
from perdure.model.ids import JobId
from perdure.model.job import HELD, Job
from perdure.model.value import Value

LOOK_SECONDS = 0.12
JOBS_MAX = 200


class Tempo(Value):
    """How much work there is, and how fast it goes."""

    books: int
    pages: int
    pause_seconds: float
    """After each page."""
    letters: int
    delay: str
    kill_after_seconds: float
    patience_seconds: float = 120.0


NORMAL = Tempo(
    books=20, pages=12, pause_seconds=0.3, letters=12, delay="8s", kill_after_seconds=5.0
)
FAST = Tempo(books=8, pages=8, pause_seconds=0.2, letters=4, delay="2s", kill_after_seconds=0.8)


class Screen(Protocol):
    """Where the demo is seen."""

    def tell(self, seconds: float, text: str) -> None: ...

    def show(self, scene: Scene, names: dict[str, str]) -> None: ...


class OutOfPatience(Exception):
    """The jobs did not finish in time, which they always should."""


class Story:
    """One run of the demo in ``folder``."""

    def __init__(self, folder: Path, tempo: Tempo, screen: Screen) -> None:
        self.store = f"sqlite:///{folder / 'jobs.db'}"
        self._folder = folder
        self._tempo = tempo
        self._screen = screen
        self._library = Library(folder / "books", tempo.books, tempo.pages)
        self._crew: list[WorkerProcess] = []
        self._names: dict[str, str] = {}
        self._began = clock.monotonic()
        self._kill_at = 0.0
        self._scene = Scene(seconds=0, jobs={})

    @property
    def seconds(self) -> float:
        return clock.monotonic() - self._began

    def run(self) -> Verdict:
        """Play it from start to end."""
        self._began = clock.monotonic()
        with Client(self.store) as client:
            try:
                self._hire(client)
                books, endless = self._enqueue(client)
                self._until(client, self._is_time_to_kill)
                self._kill_one(client)
                self._abort(client, endless)
                self._until(client, lambda: self._scene.is_over)
                self._dismiss(client)
            finally:
                for process in self._crew:
                    process.stop()
            expected = Expected(
                ids=list(self._names),
                aborted=endless.id,
                words=sum(self._library.words.values()),
                limited="letters",
                rate=tasks.LETTERS_A_SECOND,
            )
            words = sum(client.results(books, timeout=10))
            return judge(client.jobs(limit=JOBS_MAX), expected, words)

    def _hire(self, client: Client) -> None:
        self._crew = [WorkerProcess(number, self.store, self._folder) for number in (1, 2)]
        self._tell(f"starting two worker processes on {self.store}")
        self._until(client, lambda: len(client.workers()) == len(self._crew))
        pids = " and ".join(str(process.pid) for process in self._crew)
        self._tell(f"they are ready (pid {pids})")

    def _enqueue(self, client: Client) -> tuple[list[JobHandle], JobHandle]:
        """Enqueue everything; the jobs whose results count, and the one to be aborted."""
        library, tempo = self._library, self._tempo
        paths = [library.path(title) for title in library.titles]
        endless = client.enqueue(tasks.proofread, paths[0])
        self._names[endless.id] = f"proofread {library.titles[0]}"
        fetched = library.titles[:4]
        fetches = client.enqueue_many(tasks.fetch, [library.path(title) for title in fetched])
        self._name("fetch", fetches, fetched)
        inputs = [(path, tempo.pause_seconds) for path in paths]
        books = client.enqueue_many(tasks.count_words, inputs, group="books")
        self._name("count_words", books, library.titles)
        readers = [f"reader {number}" for number in range(1, tempo.letters + 1)]
        letters = client.enqueue_many(tasks.send_letter, readers, group="letters")
        self._name("send_letter", letters, readers)
        closing = client.enqueue(tasks.close_library, delay=tempo.delay)
        self._names[closing.id] = "close_library"
        self._tell(
            f"enqueued {len(self._names)} jobs: {len(books)} books to count, {len(fetches)} "
            f"fetches that fail once, {len(letters)} letters at {tasks.LETTERS_A_SECOND} a "
            "second, one for later, one that never ends"
        )
        self._kill_at = self.seconds + tempo.kill_after_seconds
        return books, endless

    def _name(self, task: str, handles: list[JobHandle], labels: list[str]) -> None:
        named = zip(handles, labels, strict=True)
        self._names |= {handle.id: f"{task} {label}" for handle, label in named}

    def _is_time_to_kill(self) -> bool:
        return self.seconds >= self._kill_at and any(each.holds for each in self._scene.workers)

    def _kill_one(self, client: Client) -> None:
        victim = max(self._crew, key=lambda process: self._holds(process))
        victim.kill()
        # Nobody else may touch these before their leases run out, so the record stands still.
        [lost] = [state for state in client.workers() if state.info.pid == victim.pid]
        self._tell(f"{victim.name} got SIGKILL while it held {len(lost.running)} jobs")
        orphans = set(lost.running)
        self._until(client, lambda: not self._orphans(orphans, lost.info.id))
        survivor = next(process for process in self._crew if not process.is_killed)
        self._tell(f"{survivor.name} has taken over all {len(lost.running)} of them")

    def _orphans(self, ids: set[JobId], dead_worker: str) -> list[Job]:
        """Those that nobody has started again yet."""
        jobs = [self._scene.jobs[id] for id in ids if id in self._scene.jobs]
        return [
            job
            for job in jobs
            if job.finished_at is None and (job.status not in HELD or job.worker == dead_worker)
        ]

    def _abort(self, client: Client, job: JobHandle) -> None:
        self._until(client, lambda: self._scene.jobs[job.id].status in HELD)
        outcome = job.abort()
        self._tell(f"aborted {self._names[job.id]}: it was {outcome.before}")

    def _dismiss(self, client: Client) -> None:
        for process in self._crew:
            if not process.is_killed:
                exit_code = process.stop()
                self._tell(f"{process.name} stopped gracefully, exit code {exit_code}")
        self._look(client)

    def _until(self, client: Client, is_reached: Callable[[], bool]) -> None:
        """Watch until something is the case."""
        self._look(client)
        while not is_reached():
            if self.seconds > self._tempo.patience_seconds:
                raise OutOfPatience(f"not finished after {self.seconds:.0f} s")
            dead = [each for each in self._crew if each.exit_code is not None]
            if any(not each.is_killed for each in dead):
                raise OutOfPatience(f"a worker ended by itself; see {dead[0].log}")
            time.sleep(LOOK_SECONDS)
            self._look(client)

    def _look(self, client: Client) -> None:
        jobs = {job.id: job for job in client.jobs(limit=JOBS_MAX)}
        held = {state.info.pid: len(state.running) for state in client.workers()}
        sights = tuple(
            WorkerSight(
                name=each.name,
                pid=each.pid,
                is_alive=each.exit_code is None,
                is_killed=each.is_killed,
                holds=held.get(each.pid, 0),
            )
            for each in self._crew
        )
        before = self._scene
        self._scene = Scene(seconds=self.seconds, jobs=jobs, workers=sights)
        for text in changes(before, self._scene, self._names):
            self._tell(text)
        self._screen.show(self._scene, self._names)

    def _holds(self, process: WorkerProcess) -> int:
        return sum(each.holds for each in self._scene.workers if each.pid == process.pid)

    def _tell(self, text: str) -> None:
        self._screen.tell(self.seconds, text)
