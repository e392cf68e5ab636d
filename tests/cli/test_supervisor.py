"""``perdure worker --processes``: dead processes come back, and a stop stops them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli import sample_tasks as sample
from tests.cli.processes import PATIENCE_SECONDS, WorkerProcess, killed_at_the_end


@contextmanager
def two_processes(folder: Path, url: str) -> Iterator[tuple[WorkerProcess, list[int]]]:
    """A supervisor whose two workers have started, and their process ids."""
    with WorkerProcess("sample", "--store", url, "--processes", "2", cwd=folder) as supervisor:
        pids = [supervisor.next("process started", process=n)["pid"] for n in (1, 2)]
        with killed_at_the_end(pids):
            for _ in pids:
                supervisor.next("worker started")
            yield supervisor, pids


def test_a_killed_process_is_started_again(folder, url, client):
    with two_processes(folder, url) as (supervisor, pids):
        os.kill(pids[0], signal.SIGKILL)

        ended = supervisor.next("process ended", pid=pids[0])
        again = supervisor.next("process started", process=1)
        supervisor.next("worker started")
        job = client.enqueue(sample.add, 1, 2)

        assert (ended["exit"], ended["restart_in"]) == (-9, 0.5)
        assert again["pid"] not in pids
        assert job.result(timeout=30) == 3
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_a_process_that_keeps_dying_is_started_less_often(folder, url, client):
    (folder / "dying.py").write_text(
        "import os\n"
        "from sample import add\n"
        "if any(each.startswith('--supervisor') for each in __import__('sys').argv):\n"
        "    os._exit(7)\n"
    )
    with WorkerProcess("dying", "--store", url, "--processes", "2", cwd=folder) as supervisor:
        delays = [
            supervisor.next("process ended", process=1, exit=7)["restart_in"] for _ in range(3)
        ]
        supervisor.signal(signal.SIGTERM)

        assert supervisor.wait() == 0
    assert delays == [0.5, 1.0, 2.0]


def test_sigterm_lets_every_process_finish_its_jobs(folder, url, client):
    release = folder / "release"
    jobs = client.enqueue_many(sample.hold, [str(release)] * 4)

    with two_processes(folder, url) as (supervisor, _):
        for _ in jobs:
            supervisor.next("job started")
        supervisor.signal(signal.SIGTERM)
        supervisor.next("stop requested", grace=30.0)
        release.touch()

        assert supervisor.wait() == 0
        lines = supervisor.wait_for_silence()
    assert client.jobs.results(jobs, timeout=1) == [1, 1, 1, 1]
    assert [line["exit"] for line in lines if line["message"] == "process ended"] == [0, 0]
    assert list(client.workers.list()) == []


def test_the_second_signal_gives_jobs_back_at_once(folder, url, client):
    job = client.enqueue(sample.hold, str(folder / "never"))

    with two_processes(folder, url) as (supervisor, _):
        supervisor.next("job started", job=job.id)
        supervisor.signal(signal.SIGINT)
        supervisor.next("stop requested", grace=30.0)
        supervisor.signal(signal.SIGINT)
        supervisor.next("stop requested", grace=0.0)
        supervisor.next("job requeued", job=job.id)

        assert supervisor.wait() == 0
    assert client.jobs.get(job.id).attempt == 0


def test_a_signal_to_the_whole_group_counts_as_one(folder, url, client):
    """A terminal and most service managers signal supervisor and children alike."""
    release = folder / "release"
    job = client.enqueue(sample.hold, str(release))

    with two_processes(folder, url) as (supervisor, pids):
        supervisor.next("job started", job=job.id)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        supervisor.signal(signal.SIGTERM)
        supervisor.next("stop requested")
        release.touch()

        assert supervisor.wait() == 0
    assert job.result(timeout=1) == 1


def test_processes_stop_gracefully_when_their_supervisor_is_killed(folder, url, client):
    release = folder / "release"
    job = client.enqueue(sample.hold, str(release))

    with two_processes(folder, url) as (supervisor, _):
        supervisor.next("job started", job=job.id)
        supervisor.signal(signal.SIGKILL)
        supervisor.next("worker stopped")
        release.touch()
        lines = supervisor.wait_for_silence()

    assert [line["message"] for line in lines].count("worker stopped") == 2
    assert job.result(timeout=1) == 1
    assert list(client.workers.list()) == []


def test_a_password_is_not_among_the_arguments_of_the_processes(folder, url, client):
    (folder / "noting.py").write_text(
        "import pathlib, sys\n"
        "from sample import add\n"
        "if any(each.startswith('--supervisor') for each in sys.argv):\n"
        "    pathlib.Path('arguments').write_text(repr(sys.orig_argv))\n"
    )
    options = ("--store", f"{url}?synchronous=full", "--processes", "2", "--concurrency", "7")
    with WorkerProcess("noting", *options, cwd=folder) as supervisor:
        started = supervisor.next("worker started")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0

    arguments = (folder / "arguments").read_text()
    assert "synchronous" in started["store"]
    assert "synchronous" not in arguments
    assert "--concurrency=7" in arguments


def test_a_process_that_does_not_stop_in_time_is_killed(folder):
    done = supervised(folder, [sys.executable, "-c", "import time; time.sleep(1000)"])

    assert done == ["ProcessStarted", "StopRequested", "ProcessKilled", "ProcessEnded", "False"]


def test_a_process_that_cannot_be_started_is_tried_again(folder):
    done = supervised(folder, ["./no-such-program"])

    assert done == ["ProcessNotStarted", "StopRequested", "True"]


def supervised(folder: Path, command: list[str]) -> list[str]:
    """What a supervisor tells that gets SIGTERM after its first word, and what it returns."""
    (folder / "supervise.py").write_text(
        "import os, signal\n"
        "from datetime import timedelta\n"
        "from perdure.worker.supervisor import Supervisor\n"
        "told = []\n"
        "def tell(event):\n"
        "    told.append(type(event).__name__)\n"
        "    if len(told) == 1:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        f"command = lambda number, pipe: {command!r}\n"
        "supervisor = Supervisor(\n"
        "    command, 1, timedelta(0), tell, kill_margin=timedelta(milliseconds=200)\n"
        ")\n"
        "told.append(str(supervisor.run()))\n"
        "print(*told)\n"
    )
    done = subprocess.run(
        [sys.executable, "supervise.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return done.stdout.split()
