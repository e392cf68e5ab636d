"""Import a folder of files every night: all or none, a few at a time.

    python examples/nightly_import.py inbox --night 2030-01-31

Every file is an item of a map with its own retries; at most three are read at once. If one cannot
be read at all, the run fails, and the undo of the first node removes the night's staged files.
Repair the file and run the same night again: the new run replaces the failed one.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from perdure import Client, Flow, Retry, RunFailed, Worker, task

STORE = "sqlite:///imports.db"


@dataclass(frozen=True)
class Night:
    name: str
    inbox: str


@dataclass(frozen=True)
class Item:
    file: str
    staging: str


@dataclass(frozen=True)
class Staged:
    name: str
    staging: str
    items: list[Item]


@dataclass(frozen=True)
class Imported:
    """Input of the last node: the outputs of two earlier ones."""

    staged: Staged
    counts: list[int]


@task
def stage(night: Night) -> Staged:
    """Create a folder for this night. Safe to repeat, like every task here."""
    staging = Path("staging") / night.name
    staging.mkdir(parents=True, exist_ok=True)
    files = sorted(str(file) for file in Path(night.inbox).glob("*.csv"))
    return Staged(night.name, str(staging), [Item(file, str(staging)) for file in files])


@task
def unstage(staged: Staged) -> None:
    shutil.rmtree(staged.staging, ignore_errors=True)


@task(retries=Retry(3, first="1s", on=(OSError,)), timeout="10m")
def import_file(item: Item) -> int:
    """Read one file; written under its own name, so a second execution overwrites the first."""
    source = Path(item.file)
    with source.open(newline="") as lines:
        amounts = {row["name"]: int(row["amount"]) for row in csv.DictReader(lines)}
    (Path(item.staging) / f"{source.stem}.json").write_text(json.dumps(amounts))
    return len(amounts)


@task
def publish(done: Imported) -> str:
    """Publish the night's files in one atomic move."""
    target = Path("warehouse") / done.staged.name
    target.parent.mkdir(exist_ok=True)
    staging = Path(done.staged.staging)
    if staging.exists():  # else an earlier execution has moved it
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
    return f"{sum(done.counts)} rows of {len(done.counts)} files"


nightly = (
    Flow("nightly")
    .then(stage, undo=unstage)
    .map(import_file, over="items", concurrency=3)
    .then(publish, after={"staged": "stage", "counts": "import_file"})
    .build()
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Import a folder, all or nothing.")
    parser.add_argument("inbox")
    parser.add_argument("--night", required=True)
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    worker = Worker(options.store, flows=[nightly]).start()
    try:
        with Client(options.store, on_conflict="replace") as client:
            night = Night(options.night, options.inbox)
            run = client.submit(nightly, night, id=f"import-{options.night}")
            print(run.result())
    except RunFailed as error:
        raise SystemExit(str(error)) from None
    finally:
        worker.shutdown()
        worker.join()


if __name__ == "__main__":
    main()
