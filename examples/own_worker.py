"""A worker of one's own on the queue as such: claim, keep alive, settle, and be fenced off.

    python examples/own_worker.py

The jobs are in ``pictures.db``. Two workers take them with ``dequeue``, keep their claims alive
with ``heartbeat`` while they are at it, and settle them with ``ack`` or ``nack``. A third one falls
asleep over a job: its lease ends, the job goes to another worker, and its late answer is refused,
so that nothing is counted twice.
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
    """Stands for work that takes longer than a lease: the size of the small picture in bytes."""
    if picture == "broken.png":
        raise ValueError("not a picture")
    time.sleep(0.8 if picture == "picture 3.png" else 0.05)
    return 1_000 + len(picture)


@contextmanager
def kept_alive(queue: JobQueue, job: QueuedJob) -> Iterator[None]:
    """Renew the claim from a thread, because the body blocks its own."""
    done = threading.Event()

    def renew() -> None:
        with suppress(ClaimLost):  # settling it will say so
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
    """Print a line in one write: print's own newline is a second one, which threads interleave."""
    print(line + "\n", end="", flush=True)


def work(queue: JobQueue, name: str, stop: threading.Event) -> None:
    """Take jobs until it is told to stop."""
    while not stop.is_set():
        queue.reclaim_expired()  # of workers that died; here, of the one that fell asleep
        job = queue.dequeue(name, tasks=["resize"], lease=LEASE_SECONDS)
        if job is None:
            stop.wait(PAUSE_SECONDS)
            continue
        try:
            say(f"{name}: {job.payload}: {attempt(queue, job)}")
        except ClaimLost:  # it was held up for longer than its lease, and another one has it
            say(f"{name}: {job.payload} was taken away")


def attempt(queue: JobQueue, job: QueuedJob) -> str:
    """Do the work of a job, and settle it."""
    try:
        with kept_alive(queue, job):
            size = resize(job.payload)
    except ValueError as error:
        return f"{error}, so it is {queue.nack(job, error)}"
    queue.ack(job, result=size)
    return f"{size} bytes"


def fall_asleep(queue: JobQueue) -> QueuedJob:
    """Take a job as any worker does, and do nothing about it until its lease is over."""
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
    """Until every job has ended."""
    while any(each.counts.keys() & LIVE for each in queue.stats()):
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description="A worker of one's own.")
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
