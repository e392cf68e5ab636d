"""Many committers at once, each on a thread, an event loop and a handle of its own."""

from __future__ import annotations

from collections import Counter
from random import Random

from perdure.model.event import Parent
from perdure.model.ids import RunId, WorkerId
from perdure.model.run import CommitState
from perdure.store.contract import Store
from tests.conformance.run_builders import (
    CHILD,
    COMPLETED,
    CONFLICT,
    DONE,
    FAILED,
    NAMESPACE,
    RUN,
    child_wait,
    claim_nodes,
    commit,
    continues,
    due_keys,
    ends,
    event,
    go_on,
    held_node,
    load,
    new_child,
    node_job,
    read_run,
    step,
    submit,
)
from tests.conformance.threads import THREADS, at_once


class TestConcurrentCommits:
    async def test_of_one_expected_number_are_done_once(self, store: Store) -> None:
        await submit(store)

        async def work(handle: Store, number: int) -> CommitState:
            job = node_job(f"by-{number}")
            return (await commit(handle, 1, events=(event(f"by {number}"),), jobs=(job,))).state

        states = await at_once(store, work)

        assert Counter(states) == {DONE: 1, CONFLICT: THREADS - 1}
        assert (await read_run(store)).number == 2
        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 1

    async def test_of_one_claim_count_once(self, store: Store) -> None:
        held = await held_node(store)

        async def work(handle: Store, number: int) -> CommitState:
            return (await commit(handle, 1, settlements=(ends(held),))).state

        states = await at_once(store, work)

        assert Counter(states)[DONE] == 1
        assert (await read_run(store)).number == 2

    async def test_of_one_token_count_once(self, store: Store) -> None:
        held = await held_node(store)
        once = step(settlements=(continues(held, node_job("next")),), jobs=(node_job("more"),))

        async def work(handle: Store, number: int) -> CommitState:
            [result] = (await handle.runs.commit([once])).results
            return result.state

        states = await at_once(store, work)

        assert Counter(states) == {DONE: THREADS}
        assert (await read_run(store)).number == 2
        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 2

    async def test_lose_nothing_and_block_nobody_in_whatever_order_they_name_runs(
        self, store: Store
    ) -> None:
        ids = [RunId(f"run-{number}") for number in range(4)]
        for id in ids:
            await submit(store, id=id)

        async def work(handle: Store, number: int) -> int:
            random, done = Random(number), 0
            for _ in range(12):
                chosen = random.sample(ids, len(ids))
                known = await handle.queries.get_runs([(NAMESPACE, id) for id in chosen])
                answer = await handle.runs.commit(
                    [step(run.number, run=run.id) for run in known if run is not None]
                )
                done += sum(each.state is DONE for each in answer.results)
            return done

        done = await at_once(store, work)

        assert sum(done) >= 12 * len(ids)
        numbers = [(await load(store, id)).events[-1].number for id in ids]
        assert sum(numbers) == sum(done) + len(ids)

    async def test_take_runs_through_their_steps_once_each(self, store: Store) -> None:
        steps, ids = 6, [RunId(f"run-{number}") for number in range(10)]
        for id in ids:
            await submit(store, id=id, jobs=(node_job("0", run=id),))

        async def work(handle: Store, number: int) -> int:
            committed = 0
            while jobs := await claim_nodes(handle, worker=WorkerId(f"w-{number}"), limit=3):
                for job in jobs:
                    assert job.node is not None
                    for at in range(steps):
                        following = node_job(str(at + 1), run=job.node.run)
                        is_last = at + 1 == steps
                        then = ends(job.claim) if is_last else continues(job.claim, following)
                        result = await commit(handle, at + 1, run=job.node.run, settlements=(then,))
                        committed += result.state is DONE
            return committed

        assert sum(await at_once(store, work)) == steps * len(ids)
        assert [(await read_run(store, id)).number for id in ids] == [steps + 1] * len(ids)

    async def test_of_children_and_their_parent_wait_for_each_other_and_no_longer(
        self, store: Store
    ) -> None:
        ids = [CHILD, *(RunId(f"child-{number}") for number in range(1, THREADS))]
        await submit(
            store,
            waits=tuple(child_wait(f"ship[{item}]", id) for item, id in enumerate(ids)),
            children=tuple(
                new_child(id=id, parent=Parent(run=RUN, key=f"ship[{item}]"))
                for item, id in enumerate(ids)
            ),
        )

        async def work(handle: Store, number: int) -> None:
            if number:
                await go_on(handle, run=ids[number], status=COMPLETED)
            else:
                await go_on(handle, cancel_all=True, status=FAILED)

        await at_once(store, work)

        assert set(await due_keys(store)) == {f"ship[{item}]" for item in range(THREADS)}
