"""Rules that compare a store with an evidence log.

They do not compare clocks: an outcome removes the job of its key, or moves it to another key. So a
later claim of the same job for the same key was made before any outcome of that key was committed,
and raised the epoch. If the committed output is of an execution with a lower epoch than another one
of the same job and key, a stale claim was accepted.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec

from perdure.diagnostics import Finding, declare
from perdure.model import event as events
from perdure.model.event import Event
from perdure.model.ids import JobId, Key, RunId
from perdure.model.job import CLAIMED, Status
from perdure.model.limit import LimitRule
from perdure.model.run import RunFilter, RunStatus
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.verify import ExtraRules, Verifier, VerifySettings
from perdure.verify.finding import contradiction
from perdure.verify.load import AuditedRun, decoded
from perdure.verify.replay import ReplayStep, origins
from perdure.verify.rules.jobs import JobView
from proof.evidence.index import EvidenceIndex, RecordedExecution, SentCommand
from proof.evidence.log import NONCE_PATTERN, Line

ANY_RESULT = object()
UNCLEAR = frozenset({"StoreError", "TimeoutError", "CancelledError", "ConnectionError", "OSError"})
"""Errors after which the result is unclear."""
CLEAR = "InvalidInput"
"""The only refusal that proves absence: others may be about another client's work."""
BATCH = 500

_NONCE = re.compile(NONCE_PATTERN)
_RECEIVED = (events.SignalReceived, events.NodeReported, events.ApprovalAnswered)

T = TypeVar("T")


class Expected(Value):
    """The known result of a run, independent of its executions."""

    status: RunStatus
    result: Any = ANY_RESULT
    """Compared as plain JSON values."""


class EvidenceSettings(VerifySettings):
    """Settings of a verification with evidence: the intended behavior."""

    expected: Mapping[str, Expected] = {}
    """By run id."""
    limits: tuple[LimitRule, ...] = ()
    """As the store applies them, by the keys in the evidence log."""
    start_slack: timedelta | None = None
    """The longest time from a claim to the start of its task. None: compare only the store's times.
    """
    leases_hold: bool = False
    """Whether no worker was ever stopped or cut off, so that every execution kept its claim."""


class Judged(Value):
    """How many of a limit's executions could be judged."""

    executions: int
    at_once: int = 0
    """Those known to have kept their claims from start to end."""
    starts: int = 0
    """Those with a known start."""


class EvidenceCounts(Value):
    """The amount of evidence, so that checking nothing does not pass for success."""

    executions: int = 0
    """Executions that started."""
    committed: int = 0
    """Those whose outputs are in the store."""
    accepted: int = 0
    refused: int = 0
    commands: int = 0
    ends: int = 0
    """Ends that clients saw."""
    limits: Mapping[str, Judged] = {}
    """By key, for each limit in the settings. 0 if tasks do not sign their outputs, which leaves a
    limit unjudged.
    """


class EvidenceVerifier(Verifier):
    """A verifier that also compares the store with an evidence log: a path, or its lines."""

    def __init__(
        self,
        store: Store,
        log: str | os.PathLike[str] | Iterable[Line] = (),
        settings: EvidenceSettings | None = None,
    ) -> None:
        self._evidence = EvidenceRules(log, settings or EvidenceSettings())
        super().__init__(store, settings, extra_rules=self._evidence.extra_rules)
        self.evidence_counts = EvidenceCounts()

    async def findings(self) -> AsyncIterator[Finding]:
        try:
            async for finding in super().findings():
                yield finding
            self.evidence_counts = self._evidence.counts()
        finally:
            self._evidence.close()


async def verify_with_evidence(
    store: Store,
    log: str | os.PathLike[str] | Iterable[Line] = (),
    settings: EvidenceSettings | None = None,
) -> list[Finding]:
    """All findings in a store, by its own contents and by the evidence."""
    return [each async for each in EvidenceVerifier(store, log, settings).findings()]


OUTPUTS_HAVE_EXECUTIONS_UNRECORDED = declare(
    "evidence.outputs_have_executions.unrecorded",
    "committed, but the evidence has no execution of it",
)
OUTPUTS_HAVE_EXECUTIONS_SEVERAL = declare(
    "evidence.outputs_have_executions.several",
    "the output is of {own_count} of its {executions_count} executions, not of one",
)
OUTPUTS_HAVE_EXECUTIONS_COMMITTED_ELSEWHERE = declare(
    "evidence.outputs_have_executions.committed_elsewhere",
    "the output of execution {nonce} is committed for {other!r} too",
)
NO_STALE_OUTPUT = declare(
    "evidence.no_stale_output",
    "the output of epoch {epoch} ({nonce}, worker {worker}) was committed after worker "
    "{after_worker} had claimed epoch {after_epoch}",
)
COMMITTED_IN_ONE_EVENT = declare(
    "evidence.committed_in_one_event", "execution {nonce} was committed before, by event {first}"
)
COMMANDS_ARE_LOGGED_REPEATED = declare(
    "evidence.commands_are_logged.repeated",
    "{command} {nonce} happened once, but is in the log {count} times",
)
COMMANDS_ARE_LOGGED_MISSING = declare(
    "evidence.commands_are_logged.missing", "{command} {nonce} was confirmed, but is not in the log"
)
COMMANDS_ARE_LOGGED_REFUSED = declare(
    "evidence.commands_are_logged.refused",
    "{command} {nonce} was refused with {error}, but is in the log",
)
CANCELS_ARE_KEPT = declare(
    "evidence.cancels_are_kept", "a cancel was confirmed, but is not in the log"
)
DECIDED_BY_THOSE_WHO_DID = declare(
    "evidence.decided_by_those_who_did",
    "{by!r} got the response that the answer counts, but it is not in the log",
)
ENDS_ARE_KEPT = declare(
    "evidence.ends_are_kept", "a client saw that it is {status}, but by its log it never was"
)
EVENTS_ARE_KEPT = declare(
    "evidence.events_are_kept",
    "a client saw that it is completed, but by the log it never was",
)
AS_EXPECTED_STATUS = declare(
    "evidence.as_expected.status", "it is {status} instead of {expected_status}"
)
AS_EXPECTED_RESULT = declare(
    "evidence.as_expected.result", "its result is {result!r} instead of {expected_result!r}"
)
IS_COUNTED = declare(
    "evidence.is_counted", "worker {worker} holds it, but it does not count under limit {limit!r}"
)
ENDS_ARE_FINAL = declare(
    "evidence.ends_are_final", "a client saw that it is {status}, but it is {job_status}"
)
OUTPUT_IS_CURRENT_UNRECORDED = declare(
    "evidence.output_is_current.unrecorded", "completed, but the evidence has no execution of it"
)
OUTPUT_IS_CURRENT_SEVERAL = declare(
    "evidence.output_is_current.several",
    "the output is of {own_count} of its {executions_count} executions, not of one",
)
OUTPUT_IS_CURRENT_EPOCH = declare(
    "evidence.output_is_current.epoch",
    "its output is of epoch {epoch} ({nonce}, worker {worker}), but its row is of epoch "
    "{job_epoch}",
)
OUTPUT_IS_CURRENT_ATTEMPT = declare(
    "evidence.output_is_current.attempt",
    "its output is of attempt {attempt}, its row of attempt {job_attempt}",
)
EXPECTED_IS_THERE = declare("evidence.expected_is_there", "expected, but does not exist")
ACCEPTED_RUN = declare("evidence.accepted.run", "accepted, but does not exist")
ACCEPTED_JOB = declare("evidence.accepted.job", "accepted, but does not exist")
ACCEPTED_NAMESPACE = declare(
    "evidence.accepted.namespace", "accepted in namespace {namespace!r}, but it is in {found!r}"
)
REFUSED = declare("evidence.refused", "refused with {error}, but it exists")
READABLE = declare("evidence.readable", "line {number} of the evidence log cannot be read")
ATTEMPTS_FOLLOW_TOO_MANY = declare(
    "evidence.attempts_follow.too_many",
    "attempt {attempt} under epoch {epoch}, with {lost} earlier attempts requeued",
)
ATTEMPTS_FOLLOW_JUMP = declare(
    "evidence.attempts_follow.jump",
    "attempt {attempt} under epoch {epoch}, then attempt {each_attempt} under epoch "
    "{each_epoch}: too few claims in between",
)
KEYS_ARE_STABLE_SPLIT = declare(
    "evidence.keys_are_stable.split", "its executions were given {count} different idempotency keys"
)
KEYS_ARE_STABLE_SHARED = declare(
    "evidence.keys_are_stable.shared",
    "idempotency key {shared!r} was given to {count} different parts or jobs",
)
LIMITS_HOLD_AT_ONCE = declare(
    "evidence.limits_hold.at_once",
    "{inside_count} executions at once under limit {limit!r}, which allows {live_max}, at "
    "{at}: {nonces}",
)
LIMITS_HOLD_STARTS = declare(
    "evidence.limits_hold.starts",
    "more than {most} starts within {window} s under limit {limit!r}: {found}",
)


class EvidenceRules:
    """The rules about one evidence log."""

    def __init__(
        self, log: str | os.PathLike[str] | Iterable[Line], settings: EvidenceSettings
    ) -> None:
        self._index = EvidenceIndex.of(log)
        self._settings = settings
        self.extra_rules = ExtraRules(
            runs=(
                self.outputs_have_executions,
                self.committed_in_one_event,
                self.commands_are_logged,
                self.cancels_are_kept,
                self.decided_by_those_who_did,
                self.ends_are_kept,
                self.events_are_kept,
                self.as_expected,
            ),
            jobs=(self.note_job, self.is_counted, self.ends_are_final, self.output_is_current),
            store=(
                self.expected_is_there,
                self.accepted,
                self.refused,
                self.readable,
                self.attempts_follow,
                self.keys_are_stable,
                self.limits_hold,
            ),
        )

    def close(self) -> None:
        self._index.close()

    def counts(self) -> EvidenceCounts:
        index = self._index
        return EvidenceCounts(
            executions=index.count("executions"),
            committed=index.count("committed"),
            accepted=index.count("accepted"),
            refused=index.count("refused"),
            commands=index.count("commands"),
            ends=index.count("end_seen"),
            limits={rule.key: self._judged(rule.key) for rule in self._settings.limits},
        )

    # Runs: outputs (I2, I3)

    def outputs_have_executions(self, view: AuditedRun) -> Iterator[Finding]:
        """Each output is of exactly one execution of its key, under the highest epoch seen."""
        if not self._index.has_executions:
            return
        runs = origins(view.run.id, view.replay.steps)
        for step, run in zip(view.replay.steps, runs, strict=True):
            key = output_key(step.event)
            if key and self._index.is_recorded(step.before.flow, Key.parse(key).node):
                yield from self._output(view, step, run, key)

    def _output(self, view: AuditedRun, step: ReplayStep, run: str, key: str) -> Iterator[Finding]:
        number = step.number
        executions = self._index.executions_of(view.run.namespace, run, key)
        if not executions:
            yield view.finding("I2", OUTPUTS_HAVE_EXECUTIONS_UNRECORDED, number, key=key)
            return
        if not self._index.is_signed(step.before.flow, Key.parse(key).node):
            return
        signed = nonces_in(view.value_of(step.stored))
        own = [each for each in executions if each.nonce in signed]
        if len(own) != 1:
            yield view.finding(
                "I2",
                OUTPUTS_HAVE_EXECUTIONS_SEVERAL,
                number,
                key=key,
                own_count=len(own),
                executions_count=len(executions),
            )
            return
        [committed] = own
        if other := self._index.commit(committed.nonce, f"{run}:{key}"):
            yield view.finding(
                "I2",
                OUTPUTS_HAVE_EXECUTIONS_COMMITTED_ELSEWHERE,
                number,
                key=key,
                nonce=committed.nonce,
                other=other,
            )
        later = [
            each
            for each in executions
            if each.job == committed.job and each.epoch > committed.epoch
        ]
        if later:
            after = later[-1]
            yield view.finding(
                "I3",
                NO_STALE_OUTPUT,
                number,
                key=committed.key,
                job=committed.job,
                epoch=committed.epoch,
                nonce=committed.nonce,
                worker=committed.worker,
                after_worker=after.worker,
                after_epoch=after.epoch,
            )

    def committed_in_one_event(self, view: AuditedRun) -> Iterator[Finding]:
        """No execution's output is that of two events of a run."""
        first: dict[tuple[str, str], int] = {}
        if not self._index.has_executions:
            return
        for step in view.replay.steps:
            key = output_key(step.event)
            if not key or not self._index.is_signed(step.before.flow, Key.parse(key).node):
                continue
            for nonce in nonces_in(view.value_of(step.stored)):
                if (key, nonce) in first:
                    numbers = (first[key, nonce], step.number)
                    yield view.finding(
                        "I2",
                        COMMITTED_IN_ONE_EVENT,
                        *numbers,
                        key=key,
                        nonce=nonce,
                        first=first[key, nonce],
                    )
                first[key, nonce] = step.number

    # Runs: commands of clients (I1, I12), ends (I8), results (I10)

    def commands_are_logged(self, view: AuditedRun) -> Iterator[Finding]:
        """Signals, reports and answers with a nonce are in the log."""
        commands = [command for command in self._commands_on(view) if command.nonce]
        if not commands:
            return
        seen: Counter[str] = Counter()
        places: dict[str, int] = {}
        ignored: set[str] = set()
        for step in view.replay.steps:
            if isinstance(step.event, _RECEIVED):
                for nonce in nonces_in(view.value_of(step.stored)):
                    seen[nonce] += 1
                    places[nonce] = step.number
            elif isinstance(step.event, events.ReportIgnored):
                ignored.add(step.event.key)
        for command in commands:
            count = seen[command.nonce]
            numbers = (places[command.nonce],) if command.nonce in places else ()
            if count > 1:
                yield view.finding(
                    "I2",
                    COMMANDS_ARE_LOGGED_REPEATED,
                    *numbers,
                    key=command.key,
                    command=command.command,
                    nonce=command.nonce,
                    count=count,
                )
            elif not command.errors and not count and command.key not in ignored:
                yield view.finding(
                    "I1",
                    COMMANDS_ARE_LOGGED_MISSING,
                    *numbers,
                    key=command.key,
                    command=command.command,
                    nonce=command.nonce,
                )
            elif command.errors and count and UNCLEAR.isdisjoint(command.errors):
                error = command.errors[0]
                yield view.finding(
                    "I12",
                    COMMANDS_ARE_LOGGED_REFUSED,
                    *numbers,
                    key=command.key,
                    command=command.command,
                    nonce=command.nonce,
                    error=error,
                )

    def cancels_are_kept(self, view: AuditedRun) -> Iterator[Finding]:
        """A run whose cancellation was confirmed is cancelled or being compensated."""
        if not any(
            command.command == "cancel" and not command.errors
            for command in self._commands_on(view)
        ):
            return
        for step in view.replay.steps:
            if isinstance(step.event, events.RunCancelled | events.CompensationStarted):
                return
        yield view.finding("I1", CANCELS_ARE_KEPT)

    def decided_by_those_who_did(self, view: AuditedRun) -> Iterator[Finding]:
        """Confirmed answers of deciders are in the log."""
        answers = {
            (step.event.node, step.event.by)
            for step in view.replay.steps
            if isinstance(step.event, events.ApprovalAnswered)
        }
        for command in self._commands_on(view):
            is_accepted = command.command == "decide" and command.by and not command.errors
            if is_accepted and (command.key, command.by) not in answers:
                yield view.finding("I1", DECIDED_BY_THOSE_WHO_DID, key=command.key, by=command.by)

    def ends_are_kept(self, view: AuditedRun) -> Iterator[Finding]:
        """The end that a client saw is in the run's log, even if the run was retried since."""
        ends = {str(step.after.status) for step in view.replay.steps if step.after.is_ended}
        for status in self._index.ends_seen(view.run.namespace, run=view.run.id):
            if status not in ends:
                yield view.finding("I8", ENDS_ARE_KEPT, status=status)

    def events_are_kept(self, view: AuditedRun) -> Iterator[Finding]:
        """Nodes whose end was reported to a client are completed in the run's log."""
        seen = self._index.nodes_seen(view.run.namespace, view.run.id)
        if not seen:
            return
        completed = set()
        for step in view.replay.steps:
            match step.event:
                case events.NodeCompleted(node=node, iteration=iteration):
                    completed.add(Key(node=node, iteration=iteration).text)
                case events.ItemCompleted(key=key) | events.IterationCompleted(key=key):
                    completed.add(key)
        for node in seen:
            if node not in completed and not Key.parse(node).part:
                yield view.finding("I8", EVENTS_ARE_KEPT, key=node)

    def as_expected(self, view: AuditedRun) -> Iterator[Finding]:
        """A run ends with its known result."""
        expected = self._settings.expected.get(view.run.id)
        if expected is None:
            return
        if view.state.status is not expected.status:
            yield view.finding(
                "I10",
                AS_EXPECTED_STATUS,
                view.state.number,
                status=view.state.status,
                expected_status=expected.status,
            )
            return
        if expected.result is ANY_RESULT or expected.status is not RunStatus.COMPLETED:
            return
        stored = {event.number: event for event in view.events}.get(view.state.result_ref)
        result = None if stored is None else msgspec.json.decode(view.value_of(stored) or b"null")
        if result != expected.result:
            yield view.finding(
                "I10",
                AS_EXPECTED_RESULT,
                view.state.result_ref,
                result=result,
                expected_result=expected.result,
            )

    def _commands_on(self, view: AuditedRun) -> list[SentCommand]:
        return self._index.commands_on(view.run.namespace, view.run.id)

    # Jobs

    def note_job(self, view: JobView) -> Iterator[Finding]:
        """Record where the job is, for accepted work; yields no findings."""
        self._index.see(view.job.namespace, view.job.id)
        return iter(())

    def is_counted(self, view: JobView) -> Iterator[Finding]:
        """A claimed job counts under the limits that all executions like it counted under."""
        job, details = view.job, view.details
        if details is None or job.status not in CLAIMED or not view.is_plain:
            return
        executions = self._index.executions_of_job(job.id)
        has_begun = any(each.epoch == job.epoch for each in executions)
        # One that is too late for a rate no longer counts, and is about to be requeued.
        checked = {
            rule.key
            for rule in self._settings.limits
            if has_begun or rule.live_max is not None or details.limit_keys
        }
        for key in self._index.limits_of("", job.task):
            if key in checked and key not in details.limit_keys:
                yield view.finding("I11", IS_COUNTED, worker=job.worker, limit=key)

    def ends_are_final(self, view: JobView) -> Iterator[Finding]:
        """The end of a job that a client saw is final, unless it was retried."""
        job = view.job
        commands = self._index.commands_on(job.namespace, "")
        if any(command.command == "retry" and command.key == job.id for command in commands):
            return
        for status in self._index.ends_seen(job.namespace, job=job.id):
            if status != job.status:
                yield view.finding("I8", ENDS_ARE_FINAL, status=status, job_status=job.status)

    def output_is_current(self, view: JobView) -> Iterator[Finding]:
        """Settling keeps the epoch: only an execution with the row's epoch may have written."""
        job, index = view.job, self._index
        if not view.is_plain or job.status is not Status.COMPLETED or view.state is None:
            return
        if not index.is_recorded("", job.task):
            return
        executions = index.executions_of_job(job.id)
        if not executions:
            yield view.finding("I2", OUTPUT_IS_CURRENT_UNRECORDED)
            return
        if not index.is_signed("", job.task):
            return
        signed = nonces_in(decoded(view.state.output, self._settings))
        own = [each for each in executions if each.nonce in signed]
        if len(own) != 1:
            yield view.finding(
                "I2",
                OUTPUT_IS_CURRENT_SEVERAL,
                own_count=len(own),
                executions_count=len(executions),
            )
            return
        [committed] = own
        started_at = None if job.started_at is None else job.started_at.timestamp()
        index.commit(committed.nonce, f"job {job.id}", started_at)
        if committed.epoch != job.epoch:
            yield view.finding(
                "I3",
                OUTPUT_IS_CURRENT_EPOCH,
                epoch=committed.epoch,
                nonce=committed.nonce,
                worker=committed.worker,
                job_epoch=job.epoch,
            )
        elif committed.attempt != job.attempt:
            yield view.finding(
                "I9", OUTPUT_IS_CURRENT_ATTEMPT, attempt=committed.attempt, job_attempt=job.attempt
            )

    # The store: what was accepted is there, what was refused left no trace (I1, I12)

    async def expected_is_there(self, store: Store) -> AsyncIterator[Finding]:
        if self._settings.allows_pruned:
            return
        for id in sorted(self._settings.expected):
            if not await store.queries.list_runs(RunFilter(id=RunId(id)), 1):
                yield contradiction("I1", EXPECTED_IS_THERE, run=id)

    async def accepted(self, store: Store) -> AsyncIterator[Finding]:
        """Everything accepted exists, or was pruned if that is allowed."""
        if self._settings.allows_pruned:
            return
        for batch in _batches(self._index.accepted()):
            places = [(namespace, RunId(run)) for namespace, run, _ in batch if run]
            runs = await store.queries.get_runs(places) if places else []
            for (namespace, id), run in zip(places, runs, strict=True):
                if run is None:
                    yield contradiction("I1", ACCEPTED_RUN, namespace=namespace, run=id)
            jobs = [(namespace, JobId(job)) for namespace, _, job in batch if job]
            states = await store.queries.job_states([job for _, job in jobs]) if jobs else {}
            for namespace, job in jobs:
                if job not in states:
                    yield contradiction("I1", ACCEPTED_JOB, namespace=namespace, job=job)
                elif (found := self._index.namespace_of(job)) not in (None, namespace):
                    yield contradiction(
                        "I1", ACCEPTED_NAMESPACE, namespace=namespace, job=job, found=found
                    )

    async def refused(self, store: Store) -> AsyncIterator[Finding]:
        for namespace, run, job, errors in self._index.refused_only():
            if CLEAR not in errors.split():
                continue
            if run:
                [found] = await store.queries.get_runs([(namespace, RunId(run))])
                is_there = found is not None
            else:
                is_there = JobId(job) in await store.queries.job_states([JobId(job)])
            if is_there:
                error = errors.split()[0]
                yield contradiction(
                    "I12", REFUSED, namespace=namespace, run=run, job=job, error=error
                )

    # What the log says by itself: attempts (I9), limits (I11), idempotency keys (I2)

    async def readable(self, _: Store) -> AsyncIterator[Finding]:
        """Only the last line may be truncated, by the end of its writer."""
        for number in self._index.unreadable:
            if number != self._index.last_line:
                yield contradiction("log", READABLE, number=number)

    async def attempts_follow(self, _: Store) -> AsyncIterator[Finding]:
        """A claim counts at most one attempt, and a requeued one counts none.

        Each claim raises the epoch. So an attempt's number is at most its epoch, minus earlier
        requeued ones; and from one execution to the next it grows by no more than the epoch.
        """
        for job, group in groupby(self._index.all_executions(), key=lambda each: each.job):
            requeued = self._index.requeued(job)
            before: RecordedExecution | None = None
            for each in group:
                # A job continues to other parts, which count from 1 again: later requeues are not
                # deducted.
                lost = sum(
                    at < each.began_at and attempt < each.attempt for at, attempt in requeued
                )
                if not 1 <= each.attempt <= each.epoch - lost:
                    yield contradiction(
                        "I9",
                        ATTEMPTS_FOLLOW_TOO_MANY,
                        **_place(each),
                        attempt=each.attempt,
                        epoch=each.epoch,
                        lost=lost,
                    )
                if before is not None and (before.run, before.key) == (each.run, each.key):
                    claims = each.epoch - before.epoch
                    if claims and each.attempt > before.attempt + claims:
                        yield contradiction(
                            "I9",
                            ATTEMPTS_FOLLOW_JUMP,
                            **_place(each),
                            attempt=before.attempt,
                            epoch=before.epoch,
                            each_attempt=each.attempt,
                            each_epoch=each.epoch,
                        )
                before = each

    async def keys_are_stable(self, _: Store) -> AsyncIterator[Finding]:
        """All executions of one part have one idempotency key, which no other part has."""
        for namespace, run, key, count in self._index.split_keys():
            yield contradiction(
                "I2", KEYS_ARE_STABLE_SPLIT, namespace=namespace, run=run, key=key, count=count
            )
        for namespace, shared, count in self._index.shared_keys():
            yield contradiction(
                "I2", KEYS_ARE_STABLE_SHARED, namespace=namespace, shared=shared, count=count
            )

    async def limits_hold(self, _: Store) -> AsyncIterator[Finding]:
        for rule in self._settings.limits:
            for finding in (*self._at_once(rule), *self._in_windows(rule)):
                yield finding

    def _at_once(self, rule: LimitRule) -> Iterator[Finding]:
        """Check concurrency among executions that surely kept their claims: those with a committed
        output.
        """
        if rule.live_max is None:
            return
        inside: set[str] = set()
        for at, step, nonce in self._running(rule.key):
            if step < 0:
                inside.discard(nonce)
                continue
            inside.add(nonce)
            if len(inside) > rule.live_max:
                nonces, limit = tuple(sorted(inside)), rule.key
                yield contradiction(
                    "I11",
                    LIMITS_HOLD_AT_ONCE,
                    inside_count=len(inside),
                    limit=limit,
                    live_max=rule.live_max,
                    at=f"{at:.6f}",
                    nonces=nonces,
                )
                return  # one finding per limit: the rest would repeat it

    def _in_windows(self, rule: LimitRule) -> Iterator[Finding]:
        rates = []
        if rule.starts_max is not None and rule.window is not None:
            rates.append((rule.starts_max, rule.window.total_seconds()))
        if rule.spacing is not None:
            rates.append((1, rule.spacing.total_seconds()))
        slack = self._settings.start_slack
        for most, window in rates:
            found = _crowd(self._index.starts(rule.key), most, window)
            if not found and slack is not None:
                starts = self._index.beginnings(rule.key)
                found = _crowd(starts, most, window - slack.total_seconds())
            if found:
                limit = rule.key
                yield contradiction(
                    "I11", LIMITS_HOLD_STARTS, most=most, window=window, limit=limit, found=found
                )

    def _judged(self, key: str) -> Judged:
        """How much of a limit was judged, so that an unjudged one does not pass."""
        index, slack = self._index, self._settings.start_slack
        starts = index.starts(key) if slack is None else index.beginnings(key)
        return Judged(
            executions=index.held_count(key),
            at_once=sum(step > 0 for _, step, _ in self._running(key)),
            starts=sum(1 for _ in starts),
        )

    def _running(self, key: str) -> Iterator[tuple[float, int, str]]:
        return self._index.running(key, only_committed=not self._settings.leases_hold)


def nonces_in(value: bytes) -> set[str]:
    return {found.decode() for found in _NONCE.findall(value)}


def output_key(event: Event) -> str:
    """The key whose output is the event's value; empty if it has none."""
    match event:
        case events.NodeCompleted(cause="", ref=0):
            return Key(node=event.node, iteration=event.iteration).text
        case events.ItemCompleted():
            return event.key
        case events.IterationCompleted() if Key.parse(event.key).part != "check":
            return event.key
        case _:
            return ""


def _crowd(starts: Iterator[tuple[float, str]], most: int, window: float) -> list[str]:
    """The first executions that started too close to each other, if any."""
    last: deque[tuple[float, str]] = deque(maxlen=most + 1)
    for start in starts:
        last.append(start)
        if len(last) > most and last[-1][0] - last[0][0] < window - 1e-6:
            return [nonce for _, nonce in last]
    return []


def _place(at: RecordedExecution) -> dict[str, Any]:
    return {"namespace": at.namespace, "run": at.run, "key": at.key, "job": at.job}


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH)):
        yield batch
