"""Your own worker on the bare queue: claim, renew, settle, and get fenced off.

    python examples/own_worker.py

The jobs are in ``pictures.db``. Two workers claim them with ``dequeue``, renew their claims with
``heartbeat`` while they work, and settle them with ``ack`` or ``nack``. A third one falls asleep
over a job: its lease expires, another worker gets the job, and its late ``ack`` is rejected, so
that nothing counts twice.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from perdure import ClaimLost, JobQueue, QueuedJob

STORE = "sqlite:///pictures.db"
LEASE_SECONDS = 0.5
PAUSE_SECONDS = 0.05
PICTURES = [f"picture {number}.png" for number in range(8)] + ["broken.png"]
LIVE = ("waiting", "scheduled", "active")


def resize(picture: str) -> int:
    """Stands for work that takes longer than a lease; return the size of the small picture."""
    if picture == "broken.png":
        raise ValueError("not a picture")
    time.sleep(0.8 if picture == "picture 3.png" else 0.05)
    return 1_000 + len(picture)


@contextmanager
def kept_alive(queue: JobQueue, job: QueuedJob) -> Iterator[None]:
    """Renew the claim from another thread, because the body blocks this one."""
    done = threading.Event()

    def renew() -> None:
        with suppress(ClaimLost):  # settling raises it again
            while not done.wait(LEASE_SECONDS / 3):
                queue.heartbeat(job)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def say(line: str) -> None:
    """Print a line in one write: ``print`` writes the newline separately; threads interleave."""
    print(line + "\n", end="", flush=True)


def work(queue: JobQueue, name: str, stop: threading.Event) -> None:
    """Claim jobs until asked to stop."""
    while not stop.is_set():
        queue.reclaim_expired()  # of crashed workers; here, of the one that fell asleep
        job = queue.dequeue(name, tasks=["resize"], lease=LEASE_SECONDS)
        if job is None:
            stop.wait(PAUSE_SECONDS)
            continue
        try:
            say(f"{name}: {job.payload}: {attempt(queue, job)}")
        except ClaimLost:  # it took longer than its lease, and another worker has the job
            say(f"{name}: {job.payload} was taken away")


def attempt(queue: JobQueue, job: QueuedJob) -> str:
    """Do the work of a job and settle it."""
    try:
        with kept_alive(queue, job):
            size = resize(job.payload)
    except ValueError as error:
        return f"{error}, so it is {queue.nack(job, error)}"
    queue.ack(job, result=size)
    return f"{size} bytes"


def fall_asleep(queue: JobQueue) -> QueuedJob:
    """Claim a job like any worker, and do nothing until its lease expires."""
    job = queue.dequeue("sleeper", tasks=["resize"], lease=LEASE_SECONDS)
    assert job is not None
    say(f"sleeper: took {job.payload} and fell asleep")
    return job


def wake_up(queue: JobQueue, job: QueuedJob) -> None:
    try:
        queue.ack(job, result=0)
    except ClaimLost:
        print(f"sleeper: woke up; {job.payload} is no longer its own, and its answer was refused")


def wait_until_done(queue: JobQueue) -> None:
    """Wait until every job has finished."""
    while any(each.counts.keys() & LIVE for each in queue.stats()):
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Your own worker on the queue.")
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    stop = threading.Event()
    with JobQueue(options.store) as queue:
        ids = [queue.enqueue("resize", picture, max_attempts=1) for picture in PICTURES]
        taken = fall_asleep(queue)
        names = ["worker 1", "worker 2"]
        workers = [threading.Thread(target=work, args=(queue, name, stop)) for name in names]
        for worker in workers:
            worker.start()
        wait_until_done(queue)
        wake_up(queue, taken)
        stop.set()
        for worker in workers:
            worker.join()
        jobs = [queue.get_job(id) for id in ids]
        sizes = [job.result for job in jobs if job.status == "completed"]
        print(f"{len(sizes)} of {len(ids)} resized, {sum(sizes)} bytes in all")


if __name__ == "__main__":
    main()
