"""Mutants of everything except standalone jobs: claims, runs, waits, schedules, engine, worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.client.events import AsyncSubscription
from perdure.engine import approvals, completion, decide, external_waits, fold, plan, run_commands
from perdure.engine.completion import complete
from perdure.engine.decider import Decider
from perdure.engine.run_view import RunView
from perdure.model.event import NodeReported
from perdure.model.graph import ORDINARY
from perdure.model.ids import RUN_START, Key
from perdure.model.job import CLAIMED
from perdure.model.run import CommitResult, CommitState, NodeStatus
from perdure.operations import ends
from perdure.operations.ends import EndFollower
from perdure.store import batching
from perdure.store.failures import lease_expired
from perdure.store.memory import commit as committing
from perdure.store.memory import jobs, maintenance, schedules
from perdure.store.memory import submit as submitting
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.maintenance import MemoryMaintenance
from perdure.store.memory.runs import MemoryRuns
from perdure.store.memory.transaction import Transaction
from perdure.worker.due_work import DueWaits
from proof.simulate.mutants.patch import Change, mutant, nothing

# Claims, epochs and leases


@mutant("an outcome is written regardless of its claim's epoch")
def _epoch_ignored() -> list[Change]:
    def claimed(self: Transaction, claim: Any) -> Any:
        job = self.state.jobs.get(claim.id)
        return job if job is not None and job.status in CLAIMED else None

    return [(Transaction, "claimed", claimed)]


@mutant("settling plain jobs has no fence at all")
def _fence_removed_from_settle_jobs() -> list[Change]:
    settle = jobs.settle

    def unfenced(transaction: Transaction, settlement: Any) -> Any:
        job = transaction.state.jobs.get(settlement.claim.id)
        if job is None or job.status not in CLAIMED:
            return settle(transaction, settlement)
        current = replace(settlement.claim, epoch=job.epoch)
        return settle(transaction, replace(settlement, claim=current))

    return [(jobs, "settle", unfenced)]


@mutant("a step of a run is committed though the claim is stale")
def _fence_removed_from_commit_runs() -> list[Change]:
    commit = committing._commit

    def unfenced(transaction: Transaction, step: Any) -> CommitResult:
        result = commit(transaction, step)
        if result.state is not CommitState.STALE:
            return result
        stale = set(result.stale)
        kept = tuple(each for each in step.settlements if each.claim not in stale)
        return commit(transaction, replace(step, settlements=kept))

    return [(committing, "_commit", unfenced)]


@mutant("a step is committed although the run has changed since the decision")
def _version_check_removed() -> list[Change]:
    commit = committing._commit

    def unchecked(transaction: Transaction, step: Any) -> CommitResult:
        result = commit(transaction, step)
        if result.state is not CommitState.CONFLICT:
            return result
        run = transaction.state.records.runs.get((step.namespace, step.run))
        return result if run is None else commit(transaction, replace(step, expected=run.number))

    return [(committing, "_commit", unchecked)]


@mutant("a step is committed to a run that replaced the one it was decided about")
def _replacement_unnoticed() -> list[Change]:
    commit = committing._commit

    def unnoticed(transaction: Transaction, step: Any) -> CommitResult:
        return commit(transaction, replace(step, created_at=None))

    return [(committing, "_commit", unnoticed)]


@mutant("jobs are taken over before their lease expires")
def _lease_ignored() -> list[Change]:
    async def take_all(self: Any, namespace: str, limit: int) -> Any:
        with self._session.transaction() as transaction:
            later = transaction.now + timedelta(hours=1)
            held = transaction.state.claimed.up_to(later, limit, namespace)
            jobs = [transaction.state.jobs[id] for id in held]
            return [
                maintenance._take_over(transaction, job, lease_expired(job.worker)) for job in jobs
            ]

    return [(MemoryMaintenance, "take_over_expired", take_all)]


@mutant("a job with an expired lease is never taken over")
def _nothing_is_taken_over() -> list[Change]:
    async def take_none(self: Any, namespace: str, limit: int) -> Any:
        return []

    return [(MemoryMaintenance, "take_over_expired", take_none)]


@mutant("a worker that starts again leaves what it had claimed to the leases")
def _former_claims_are_left() -> list[Change]:
    async def take_none(self: Any, *args: Any) -> Any:
        return []

    return [(MemoryMaintenance, "take_over_former", take_none)]


@mutant(
    "a worker takes the claims of a newer one with its id for its own lost ones", seeds_max=1_000
)
def _incarnation_ignored() -> list[Change]:
    requeue = MemoryJobs.requeue_unknown

    async def requeue_all(self: Any, worker: Any, known: Any, incarnation: Any = None) -> int:
        state = self._session.state
        held = [state.jobs[id].incarnation for id in state.by_worker.ids(worker)]
        return sum([await requeue(self, worker, known, each) for each in {*held, incarnation}])

    return [(MemoryJobs, "requeue_unknown", requeue_all)]


@mutant("a takeover does not raise the epoch")
def _take_over_keeps_the_epoch() -> list[Change]:
    take_over = maintenance._take_over

    def keeping(transaction: Transaction, job: Any, *args: Any) -> Any:
        taken = take_over(transaction, job, *args)
        transaction.save(replace(transaction.state.jobs[job.id], epoch=job.epoch))
        return taken

    return [(maintenance, "_take_over", keeping)]


@mutant("a claim does not raise the epoch")
def _claim_keeps_the_epoch() -> list[Change]:
    start = jobs._start

    def keeping(transaction: Transaction, *args: Any) -> Any:
        job = start(transaction, *args)
        kept = replace(job, epoch=max(1, job.epoch - 1))
        transaction.save(kept)
        return kept

    return [(jobs, "_start", keeping)]


@mutant("a requeued job has used up an attempt")
def _attempt_counted_on_requeue() -> list[Change]:
    effects = jobs._effects

    def counting(job: Any, written: Any, *args: Any) -> Any:
        return effects(job, written._replace(attempts_back=0), *args)

    return [(jobs, "_effects", counting)]


# Logs, and what a commit writes


@mutant("the last of several events of a commit is not appended")
def _event_skipped() -> list[Change]:
    add_events = submitting.add_events

    def skipping(transaction: Transaction, place: Any, events: Any, *args: Any) -> None:
        several = list(events)
        add_events(transaction, place, several[:-1] if len(several) > 1 else several, *args)

    return [(committing, "add_events", skipping)]


@mutant("an event gets the number of the one before it")
def _event_numbered_twice() -> list[Change]:
    add_events = submitting.add_events

    def doubling(transaction: Transaction, place: Any, *args: Any) -> None:
        add_events(transaction, place, *args)
        log = transaction.state.records.events[place]
        if len(log) > 2:
            last = log[-1]
            log[-1] = replace(last, event=replace(last.event, number=last.event.number - 1))

    return [(committing, "add_events", doubling)]


@mutant("a commit repeated after a lost response does not recognize itself", seeds_max=1_000)
def _token_ignored() -> list[Change]:
    return [(committing, "_is_repeated", lambda *_: False)]


@mutant("jobs stay when their run ends or cancels them")
def _jobs_left_behind() -> list[Change]:
    return [(committing, "_give_up_jobs", nothing)]


@mutant("ended waits are not closed")
def _wait_not_closed() -> list[Change]:
    return [(committing, "_end_waits", nothing)]


@mutant("new jobs of a step are not inserted if there are several")
def _one_job_of_several() -> list[Change]:
    add_work = submitting.add_work

    def dropping(transaction: Transaction, place: Any, new: Any, *args: Any) -> None:
        add_work(transaction, place, tuple(new)[:1], *args)

    return [(committing, "add_work", dropping)]


@mutant("a child's end is not reported to its parent")
def _parent_not_woken() -> list[Change]:
    return [(committing, "wake_parent", nothing), (submitting, "wake_parent", nothing)]


@mutant("children of an ended run are not cancelled")
def _children_not_given_up() -> list[Change]:
    def closing(transaction: Transaction, wait: Any, **changes: Any) -> None:
        records = transaction.state.records
        transaction.put(records.put_wait, wait.place, wait, None)

    return [(committing, "make_due", closing)]


@mutant("a paused run keeps its jobs in the queue")
def _pause_leaves_jobs() -> list[Change]:
    return [(committing, "_suspend_jobs", nothing)]


@mutant("the waits of a paused run become due")
def _pause_leaves_waits() -> list[Change]:
    return [(committing, "_suspend_waits", nothing)]


@mutant("a resumed run does not get its jobs back")
def _unpause_forgets_jobs() -> list[Change]:
    hold = committing._suspend_jobs

    def forgetting(*args: Any, suspend: bool) -> None:
        if suspend:
            hold(*args, suspend=suspend)

    return [(committing, "_suspend_jobs", forgetting)]


# Limits, fingerprints, schedules, steps


@mutant("a limit counts one job less than there are")
def _limit_counts_one_less() -> list[Change]:
    usage = jobs._usage

    def counting(*args: Any) -> Any:
        found = usage(*args)
        return replace(found, live=max(0, found.live - 1))

    return [(jobs, "_usage", counting)]


@mutant("starts are not counted against a rate")
def _rate_forgotten() -> list[Change]:
    return [(jobs, "record_starts", nothing)]


@mutant("a taken fingerprint is ignored")
def _fingerprint_ignored() -> list[Change]:
    return [(jobs, "live_rival", lambda *_: None)]


@mutant("a schedule is written although it has changed since")
def _revision_guard_removed() -> list[Change]:
    commit = schedules._commit

    def unguarded(transaction: Transaction, step: Any) -> Any:
        place = step.schedule.namespace, step.schedule.name
        before = transaction.state.schedules.by_place.get(place)
        expected = None if before is None else before.revision
        return commit(transaction, replace(step, expected=expected))

    return [(schedules, "_commit", unguarded)]


@mutant("the results of steps are forgotten")
def _steps_forgotten() -> list[Change]:
    async def load_none(self: Any, owner: str) -> Any:
        return []

    return [(MemoryRuns, "load_steps", load_none)]


# The worker


@mutant("waits are ended without checking that they are unchanged")
def _still_due_removed() -> list[Change]:
    async def all_of_them(self: Any, found: Any) -> Any:
        return list(found)

    return [(DueWaits, "_still_due", all_of_them)]


@mutant("the poll does not report when a wait is due")
def _waits_not_polled() -> list[Change]:
    poll = MemoryMaintenance.poll

    async def blind(self: Any, *args: Any) -> Any:
        return replace(await poll(self, *args), next_wait_at=None)

    return [(MemoryMaintenance, "poll", blind)]


@mutant("one of several outcomes that wait together is lost")
def _outcome_lost() -> list[Change]:
    take = batching.Batches._take

    def losing(self: Any) -> Any:
        batch = take(self)
        return batch[:-1] if len(batch) > 1 else batch

    return [(batching.Batches, "_take", losing)]


# The rules


@mutant("a consumed signal stays available")
def _signal_taken_twice() -> list[Change]:
    return [(fold, "_without_signal", lambda signals, ref: signals)]


@mutant("a report that arrives before the pause is lost")
def _early_report_dropped() -> list[Change]:
    reported = fold._node_reported

    def forgetting(state: Any, event: Any, changes: Any) -> None:
        reported(state, event, changes)
        if event.key not in event.effects.started:
            changes.pop("early_reports", None)

    return [(fold, "_FOLDS", {**fold._FOLDS, NodeReported: forgetting})]


@mutant("an approval is decided by one answer too few")
def _quorum_off_by_one() -> list[Change]:
    decision_of = approvals.decision_of

    def hasty(node: Any, state: Any) -> Any:
        eased = replace(node, quorum=node.quorum - 1) if node.quorum > 1 else node
        return decision_of(eased, state)

    return [(approvals, "decision_of", hasty)]


@mutant("an ended run still accepts signals, pauses and cancellations")
def _ended_not_refused() -> list[Change]:
    return [(decide, "refuse_ended", nothing), (run_commands, "refuse_ended", nothing)]


@mutant("a retry starts completed nodes again")
def _retry_restarts_completed() -> list[Change]:
    def reopening(d: Decider, afresh: Any = ()) -> None:
        again = {
            id: replace(node, status=NodeStatus.FAILED)
            if node.status is NodeStatus.COMPLETED
            else node
            for id, node in d.state.nodes.items()
        }
        d.view.state = replace(d.state, nodes=d.state.nodes.update(again))
        reopen(d, afresh)

    reopen = run_commands.reopen
    return [(run_commands, "reopen", reopening)]


@mutant("cancelling leaves live work running")
def _cancel_clears_nothing() -> list[Change]:
    give_up = Decider.give_up

    def keeping(self: Decider) -> None:
        give_up(self)
        self.decision.cancel_all = False

    return [(Decider, "give_up", keeping)]


@mutant("a signal counts for a node that waits for another one")
def _filter_ignored() -> list[Change]:
    return [(RunView, "accepts", lambda self, where, number, budget: True)]


@mutant("the outputs of a map come in the wrong order")
def _items_out_of_order() -> list[Change]:
    def mixed(self: RunView, progress: Any) -> bytes:
        refs = [progress.refs[number] for number in reversed(range(progress.count))]
        return msgspec.json.encode(self.json_of(refs))

    return [(RunView, "gathered_items", mixed)]


@mutant("completed items of a failed map are not undone", seeds_max=1_000)
def _items_not_undone() -> list[Change]:
    def nodes_only(d: Decider) -> tuple[str, ...]:
        return tuple(text for text in to_undo(d) if Key.parse(text).item is None)

    to_undo = completion._to_undo
    return [(completion, "_to_undo", nodes_only)]


@mutant("timers are due immediately")
def _due_at_once() -> list[Change]:
    return [(submitting, "_due_at", lambda wait, now: None if wait.delay is None else now)]


@mutant("a timeout fires after its signal arrived")
def _signal_leaves_its_wait() -> list[Change]:
    deliver = run_commands.deliver

    def leaving(d: Decider, names: Any, since: int = 0) -> None:
        deliver(d, names, since)
        d.decision.close_waits.clear()

    return [(run_commands, "deliver", leaving), (decide, "deliver", leaving)]


@mutant("a node is undone twice")
def _undone_twice() -> list[Change]:
    def undone(d: Decider, key: Key, failure: Any) -> None:
        text = Key(node=key.node, item=key.item).text
        left = d.state.undoes[d.state.undoes.index(text) :]
        if len(left) > 1:
            d.view.state = replace(d.state, undoes=(*left[:1], *left))
        ended(d, key, failure)

    ended = completion.undone
    return [(decide, "undone", undone)]


@mutant("an expired pause resumes and stays open")
def _pause_not_closed() -> list[Change]:
    def due(d: Decider, key: Any) -> None:
        if key.part == "poll":
            pause_due(d, key)
        else:
            complete(d, key.node, ORDINARY, b"null", cause="timeout")

    pause_due = external_waits.pause_due
    return [(decide, "pause_due", due)]


# Events for clients


@mutant("an end with the time of the one before it is not delivered")
def _ends_at_one_time_lost() -> list[Change]:
    return [(ends.Ends, "is_new", lambda self, id, at: at > self.at)]


@mutant("a follower waits until the clock that was set back shows the time of its cursor")
def _ends_lost_behind_a_clock_step() -> list[Change]:
    return [(ends, "CLOCK_STEP_MIN", timedelta(days=1))]


@mutant("a follower does not learn that ends were pruned before it read them")
def _gap_unnoticed() -> list[Change]:
    async def unchecked(self: EndFollower) -> None:
        pass

    return [(EndFollower, "check_gap", unchecked)]


@mutant("a job that failed is said to be completed")
def _end_reported_wrong() -> list[Change]:
    original = EndFollower._job_event

    def wrong(*args: Any) -> Any:
        return replace(original(*args), type="job.completed")

    return [(EndFollower, "_job_event", wrong)]


@mutant("a handler is called after it was unsubscribed")
def _still_subscribed() -> list[Change]:
    return [(AsyncSubscription, "unsubscribe", nothing)]


@mutant("a retry is announced though the run has no attempts left")
def _retry_announced_in_vain() -> list[Change]:
    return [(plan.Plan, "retries", lambda self, claim: True)]


# Settings of runs


@mutant("the jobs of a run keep their priority when that of the run changes")
def _priorities_left() -> list[Change]:
    reprioritized = committing._reprioritized

    def of_the_run_only(transaction: Transaction, run: Any, given: Any) -> Any:
        return reprioritized(transaction, run, replace(given, jobs=()))

    return [(committing, "_reprioritized", of_the_run_only)]


@mutant("jobs keep their rank when their priority changes")
def _ranks_left() -> list[Change]:
    reprioritized = committing._reprioritized

    def without_aging(transaction: Transaction, run: Any, given: Any) -> Any:
        return reprioritized(transaction, run, replace(given, aging=timedelta(0)))

    return [(committing, "_reprioritized", without_aging)]


@mutant("a delayed run has no timer for its start")
def _start_forgotten() -> list[Change]:
    decided = decide.submit

    def without_start(*args: Any, **given: Any) -> Any:
        decision, state = decided(*args, **given)
        decision.waits = [wait for wait in decision.waits if wait.key != RUN_START]
        return decision, state

    return [(plan, "submit", without_start)]


@mutant("runs start without a place")
def _places_ignored() -> list[Change]:
    return [(committing, "takes_place", lambda *_: True)]


@mutant("the end of a run does not free its place")
def _place_not_found() -> list[Change]:
    return [(committing, "start_next", nothing)]


@mutant("the timer of a completed run stays open")
def _clock_left() -> list[Change]:
    return [(completion, "RUN_TIMEOUT", "run:another")]


def _opened_for(method: str, delay: timedelta) -> Change:
    """A method of ``Decider`` that opens a timer of the run, for another time."""
    original = getattr(Decider, method)

    def opening(self: Decider, *args: Any, **given: Any) -> None:
        before = len(self.decision.waits)
        original(self, *args, **given)
        for number, wait in enumerate(self.decision.waits[before:], start=before):
            self.decision.waits[number] = replace(wait, delay=delay, due_at=None)

    return Decider, method, opening


@mutant("a delayed run starts immediately")
def _start_without_delay() -> list[Change]:
    return [_opened_for("queue", timedelta(0))]


@mutant("a run times out as soon as it starts")
def _clock_without_delay() -> list[Change]:
    return [_opened_for("start_clock", timedelta(0))]


@mutant("a run times out an hour after its start")
def _clock_too_late() -> list[Change]:
    return [_opened_for("start_clock", timedelta(hours=1))]


@mutant("the clock of a run that leaves out waiting never stops")
def _clock_never_stops() -> list[Change]:
    return [(plan, "is_clock_stopped", lambda state: False)]


@mutant("a run continues although it has no attempts left")
def _attempts_unbounded() -> list[Change]:
    return [(decide, "_is_exhausted", lambda d, failed_attempts: False)]


@mutant("jobs of a run ignore its queue and tags")
def _place_of_run_ignored() -> list[Change]:
    return [(plan, "placed", lambda partition, settings, node: partition)]
