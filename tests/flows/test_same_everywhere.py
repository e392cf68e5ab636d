"""I10: the same flow gives the same result in-process, on one worker, and on many."""

from __future__ import annotations

import asyncio

import pytest

from perdure import AsyncClient, run_flow_async
from tests.flows import catalogue
from tests.flows.catalogue import CASES, FLOWS
from tests.flows.conftest import results_of_all

EXPECTED = {name: case.expected for name, case in CASES.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_in_process(case):
    result = await run_flow_async(
        case.flow,
        case.input,
        signals=case.signals,
        answers=case.answers,
        reports=case.reports,
        timeout="20s",
    )

    assert result == case.expected


async def test_on_one_worker(client, start_worker):
    await start_worker(flows=FLOWS)
    assert await results_of_all(client) == EXPECTED


async def test_on_three_worker_processes(shared_url, launch):
    workers = await asyncio.gather(
        *(launch(shared_url, flows="tests.flows.catalogue:FLOWS") for _ in range(3))
    )
    async with AsyncClient(shared_url) as client:
        assert await results_of_all(client) == EXPECTED
    assert [worker.errors for worker in workers] == ["", "", ""]


class TestParallel:
    async def test_branches_on_one_worker(self, client, start_worker, tmp_path):
        await start_worker(flows=[catalogue.parallel])
        place = tmp_path / "place"
        place.mkdir()
        assert await (await client.submit(catalogue.parallel, str(place))).result(20) == 3

    async def test_items_on_one_worker(self, client, start_worker, tmp_path):
        await start_worker(flows=[catalogue.parallel_items])
        place = tmp_path / "place"
        place.mkdir()
        run = await client.submit(catalogue.parallel_items, [str(place)] * 3)
        assert await run.result(20) == 3

    async def test_branches_on_three_processes_with_a_slot_each(self, shared_url, launch, tmp_path):
        flows = "tests.flows.catalogue:PARALLEL"
        await asyncio.gather(*(launch(shared_url, flows=flows, concurrency=1) for _ in range(3)))
        place = tmp_path / "place"
        place.mkdir()
        async with AsyncClient(shared_url) as client:
            branches = await client.submit(catalogue.parallel, str(place))
            assert await branches.result(20) == 3
