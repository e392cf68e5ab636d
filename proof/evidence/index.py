"""The evidence log as a temporary database for queries, however long it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice

from perdure.model.client_event import EVENTS, EventSource
from perdure.model.ids import Key
from perdure.model.value import Value
from proof.evidence.log import (
    Accepted,
    BodyEnded,
    BodyStarted,
    CommandSent,
    EndSeen,
    EventSeen,
    Line,
    Refused,
    Requeued,
    read_lines,
)

_TABLES = """
CREATE TABLE executions (
    nonce TEXT PRIMARY KEY, began_at REAL, namespace TEXT, job TEXT, epoch INTEGER,
    attempt INTEGER, task TEXT, worker TEXT, idempotency_key TEXT, run TEXT, key TEXT
) WITHOUT ROWID;
CREATE INDEX executions_of_key ON executions (namespace, run, key);
CREATE INDEX executions_of_job ON executions (job, epoch);
CREATE TABLE ends (nonce TEXT PRIMARY KEY, ended_at REAL, error TEXT) WITHOUT ROWID;
CREATE TABLE places (flow TEXT, node TEXT, PRIMARY KEY (flow, node)) WITHOUT ROWID;
CREATE TABLE signers (flow TEXT, node TEXT, PRIMARY KEY (flow, node)) WITHOUT ROWID;
CREATE TABLE places_of (nonce TEXT PRIMARY KEY, flow TEXT, node TEXT) WITHOUT ROWID;
CREATE TABLE held (limit_key TEXT, nonce TEXT, PRIMARY KEY (limit_key, nonce)) WITHOUT ROWID;
CREATE TABLE accepted (
    namespace TEXT, run TEXT, job TEXT, PRIMARY KEY (namespace, run, job)
) WITHOUT ROWID;
CREATE TABLE refused (namespace TEXT, run TEXT, job TEXT, errors TEXT);
CREATE TABLE commands (
    namespace TEXT, run TEXT, command TEXT, key TEXT, by TEXT, nonce TEXT, errors TEXT
);
CREATE INDEX commands_on_run ON commands (namespace, run);
CREATE TABLE end_seen (
    namespace TEXT, run TEXT, job TEXT, status TEXT, PRIMARY KEY (run, job, namespace, status)
) WITHOUT ROWID;
CREATE TABLE nodes_seen (
    namespace TEXT, run TEXT, node TEXT, PRIMARY KEY (namespace, run, node)
) WITHOUT ROWID;
CREATE TABLE there (job TEXT PRIMARY KEY, namespace TEXT) WITHOUT ROWID;
CREATE TABLE requeued (job TEXT, at REAL, attempt INTEGER);
CREATE TABLE committed (
    nonce TEXT PRIMARY KEY, place TEXT, started_at REAL
) WITHOUT ROWID;
"""
_BATCH = 5_000


class RecordedExecution(Value):
    nonce: str
    began_at: float
    namespace: str
    job: str
    epoch: int
    attempt: int
    task: str
    worker: str
    idempotency_key: str
    run: str
    key: str


class SentCommand(Value):
    command: str
    key: str
    by: str
    nonce: str
    errors: tuple[str, ...]


class EvidenceIndex:
    """The contents of an evidence log, possibly empty."""

    def __init__(self, lines: Iterable[tuple[int, Line | None]] = ()) -> None:
        self._database = sqlite3.connect("")  # a temporary file, removed with the connection
        self._database.executescript(_TABLES)
        self.unreadable: list[int] = []
        self.last_line = 0
        self._limits_of: dict[tuple[str, str], list[str]] = {}
        self._take_all(lines)
        self.has_executions = self.count("executions") > 0
        self.has_commands = self.count("commands") > 0

    @staticmethod
    def of(source: str | os.PathLike[str] | Iterable[Line]) -> EvidenceIndex:
        if isinstance(source, str | os.PathLike):
            return EvidenceIndex(read_lines(source))
        return EvidenceIndex(enumerate(source, start=1))

    def close(self) -> None:
        self._database.close()

    def executions_of(self, namespace: str, run: str, key: str) -> list[RecordedExecution]:
        return list(self._executions("namespace = ? AND run = ? AND key = ?", namespace, run, key))

    def executions_of_job(self, job: str) -> list[RecordedExecution]:
        return list(self._executions("job = ? AND run = ''", job))

    def all_executions(self) -> Iterator[RecordedExecution]:
        """By job, in the order of their claims."""
        return self._executions("TRUE")

    def is_recorded(self, flow: str, node: str) -> bool:
        """Whether executions of a node, or of a standalone task (no flow), are in the log."""
        return self._is_in("places", flow, node)

    def is_signed(self, flow: str, node: str) -> bool:
        """Whether the outputs of a node, or of a standalone task, contain nonces."""
        return self._is_in("signers", flow, node)

    def limits_of(self, flow: str, node: str) -> list[str]:
        """The limits that every execution of a node, or of a standalone task, counted under."""
        place = (flow, node)
        if place not in self._limits_of:
            rows = self._rows(
                "SELECT limit_key FROM held JOIN places_of USING (nonce)"
                " WHERE flow = ? AND node = ? GROUP BY limit_key"
                " HAVING count(*) = (SELECT count(*) FROM places_of WHERE flow = ? AND node = ?)",
                (*place, *place),
            )
            self._limits_of[place] = [key for (key,) in rows]
        return self._limits_of[place]

    def held_count(self, limit_key: str) -> int:
        """How many executions counted under a limit."""
        [(count,)] = self._rows("SELECT count(*) FROM held WHERE limit_key = ?", (limit_key,))
        return int(count)

    def running(self, limit_key: str, *, only_committed: bool) -> Iterator[tuple[float, int, str]]:
        """Starts (+1) and ends (-1) under a limit in order, ends first."""
        committed = "JOIN committed USING (nonce)" if only_committed else ""
        return self._rows(
            f"""
            SELECT began_at AS at, 1 AS step, nonce
            FROM held JOIN executions USING (nonce) JOIN ends USING (nonce) {committed}
            WHERE limit_key = :key AND ended_at > began_at
            UNION ALL
            SELECT ended_at, -1, nonce
            FROM held JOIN executions USING (nonce) JOIN ends USING (nonce) {committed}
            WHERE limit_key = :key AND ended_at > began_at
            ORDER BY at, step
            """,
            {"key": limit_key},
        )

    def starts(self, limit_key: str) -> Iterator[tuple[float, str]]:
        """When executions under a limit were claimed, where the store still has the time."""
        return self._rows(
            "SELECT started_at, nonce FROM held JOIN committed USING (nonce)"
            " WHERE limit_key = ? AND started_at IS NOT NULL ORDER BY started_at",
            (limit_key,),
        )

    def beginnings(self, limit_key: str) -> Iterator[tuple[float, str]]:
        """When tasks under a limit started."""
        return self._rows(
            "SELECT began_at, nonce FROM held JOIN executions USING (nonce)"
            " WHERE limit_key = ? ORDER BY began_at",
            (limit_key,),
        )

    def split_keys(self) -> Iterator[tuple[str, str, str, int]]:
        """Parts of runs whose executions do not agree on one idempotency key."""
        return self._rows(
            "SELECT namespace, run, key, count(DISTINCT idempotency_key) AS count FROM executions"
            " WHERE run <> '' GROUP BY namespace, run, key HAVING count > 1",
            (),
        )

    def shared_keys(self) -> Iterator[tuple[str, str, int]]:
        """Idempotency keys that different parts or jobs share."""
        return self._rows(
            "SELECT namespace, idempotency_key,"
            " count(DISTINCT CASE run WHEN '' THEN job ELSE run || char(10) || key END) AS count"
            " FROM executions GROUP BY namespace, idempotency_key HAVING count > 1",
            (),
        )

    def accepted(self) -> Iterator[tuple[str, str, str]]:
        return self._rows("SELECT namespace, run, job FROM accepted", ())

    def refused_only(self) -> Iterator[tuple[str, str, str, str]]:
        """Requests that were refused and never accepted under their id, with error types."""
        return self._rows(
            """
            SELECT namespace, run, job, errors FROM refused
            WHERE (run <> '' OR job <> '')
              AND NOT EXISTS (
                SELECT 1 FROM accepted
                WHERE accepted.namespace = refused.namespace
                  AND accepted.run = refused.run AND accepted.job = refused.job
              )
            """,
            (),
        )

    def ends_seen(self, namespace: str, *, run: str = "", job: str = "") -> list[str]:
        """The ends of a run or job that clients saw."""
        rows = self._rows(
            "SELECT status FROM end_seen WHERE run = ? AND job = ? AND namespace = ?",
            (run, job, namespace),
        )
        return [status for (status,) in rows]

    def nodes_seen(self, namespace: str, run: str) -> list[str]:
        """The nodes of a run that live events said were completed."""
        text = "SELECT node FROM nodes_seen WHERE namespace = ? AND run = ?"
        return [node for (node,) in self._rows(text, (namespace, run))]

    def commands_on(self, namespace: str, run: str) -> list[SentCommand]:
        if not self.has_commands:
            return []
        found = self._rows(
            "SELECT command, key, by, nonce, errors FROM commands WHERE namespace = ? AND run = ?",
            (namespace, run),
        )
        return [
            SentCommand(command=command, key=key, by=by, nonce=nonce, errors=tuple(errors.split()))
            for command, key, by, nonce, errors in found
        ]

    def requeued(self, job: str) -> list[tuple[float, int]]:
        """The attempts of a job that were requeued, and when."""
        rows = self._rows("SELECT at, attempt FROM requeued WHERE job = ?", (job,))
        return [(at, attempt) for at, attempt in rows]

    def count(self, table: str) -> int:
        [(count,)] = self._database.execute(f"SELECT count(*) FROM {table}")
        return int(count)

    def commit(self, nonce: str, place: str, started_at: float | None = None) -> str:
        """Record where an execution's output is; returns another place that has it, if any."""
        found = self._database.execute("SELECT place FROM committed WHERE nonce = ?", (nonce,))
        for (other,) in found.fetchall():
            return str(other) if other != place else ""
        self._database.execute("INSERT INTO committed VALUES (?, ?, ?)", (nonce, place, started_at))
        return ""

    def see(self, namespace: str, job: str) -> None:
        """Record that a job is in the store, and its namespace."""
        self._insert("there", job, namespace)

    def namespace_of(self, job: str) -> str | None:
        for (namespace,) in self._rows("SELECT namespace FROM there WHERE job = ?", (job,)):
            return str(namespace)
        return None

    def _take_all(self, lines: Iterable[tuple[int, Line | None]]) -> None:
        remaining = iter(lines)
        while batch := list(islice(remaining, _BATCH)):
            for number, line in batch:
                self.last_line = number
                if line is None:
                    self.unreadable.append(number)
                else:
                    self._take(line)
        self._database.execute(
            "INSERT OR IGNORE INTO places SELECT DISTINCT flow, node FROM places_of"
        )

    def _take(self, line: Line) -> None:
        match line:
            case BodyStarted():
                # The columns of the table, in their order; ``began_at`` is the line's ``at``.
                columns = ("nonce", "at", *RecordedExecution.__struct_fields__[2:])
                self._insert("executions", *(getattr(line, name) for name in columns))
                self._insert("places_of", line.nonce, *place_of(line))
                for key in line.limits:
                    self._insert("held", key, line.nonce)
            case BodyEnded():
                self._insert("ends", line.nonce, line.at, line.error)
                if line.is_signed:
                    self._database.execute(
                        "INSERT OR IGNORE INTO signers"
                        " SELECT flow, node FROM places_of WHERE nonce = ?",
                        (line.nonce,),
                    )
            case Accepted():
                self._insert("accepted", line.namespace, line.run, line.job)
            case Refused():
                errors = " ".join(line.errors)
                self._insert("refused", line.namespace, line.run, line.job, errors)
            case CommandSent():
                errors = " ".join(line.errors)
                where = (line.namespace, line.run, line.command, line.key)
                self._insert("commands", *where, line.by, line.nonce, errors)
            case EndSeen():
                self._insert("end_seen", line.namespace, line.run, line.job, line.status)
            case EventSeen():
                of, _, status = line.name.partition(".")
                if line.name == "node.completed":
                    self._insert("nodes_seen", line.namespace, line.run, line.node)
                elif EVENTS[line.name] is not EventSource.LIVE:
                    job = line.job if of == "job" else ""
                    self._insert("end_seen", line.namespace, line.run, job, status)
            case Requeued():
                self._insert("requeued", line.job, line.at, line.attempt)

    def _insert(self, table: str, *values: object) -> None:
        marks = ", ".join("?" * len(values))
        self._database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)

    def _executions(self, where: str, *values: str) -> Iterator[RecordedExecution]:
        columns = RecordedExecution.__struct_fields__
        text = (
            f"SELECT {', '.join(columns)} FROM executions"
            f" WHERE {where} ORDER BY job, epoch, attempt, began_at"
        )
        for row in self._rows(text, values):
            yield RecordedExecution(**dict(zip(columns, row, strict=True)))

    def _is_in(self, table: str, flow: str, node: str) -> bool:
        text = f"SELECT 1 FROM {table} WHERE flow = ? AND node = ?"
        return self._database.execute(text, (flow, node)).fetchone() is not None

    def _rows(self, text: str, values: object) -> Iterator[tuple]:  # type: ignore[type-arg]  # rows
        return iter(self._database.execute(text, values))  # type: ignore[arg-type]  # of any kind


def place_of(line: BodyStarted) -> tuple[str, str]:
    """The flow and node of an execution; for a standalone job, no flow and its task.

    Executions beside a node, such as its compensation, have their own outputs: the part of the key
    counts too.
    """
    if not line.run:
        return "", line.task
    key = Key.parse(line.key)
    name = line.flow.rpartition("@")[0]
    return name, f"{key.part}:{key.node}" if key.part else key.node
