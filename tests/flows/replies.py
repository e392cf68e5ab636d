"""What people and outside parties bring to the runs of the catalogue, through a client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from perdure import AsyncClient
from perdure.operations.records import WaitRecord
from tests.flows.case import Case

WAITS_MAX = 1000
STEP_SECONDS = 0.02
LONG_SECONDS = 40.0
"""Some bodies start processes, on a machine that is busy."""


class Replies:
    """Answers and reports that are still to be given, for runs called like their cases."""

    def __init__(self, client: AsyncClient, cases: Mapping[str, Case]) -> None:
        self._client = client
        self._answers = {
            (run, node): list(answers)
            for run, case in cases.items()
            for node, answers in case.answers.items()
        }
        self._reports = {
            (run, key): list(reports)
            for run, case in cases.items()
            for key, reports in case.reports.items()
        }

    async def give_all(self) -> None:
        try:
            async with asyncio.timeout(LONG_SECONDS):
                while not await self._are_given():  # noqa: ASYNC110 (nobody would set an event)
                    await asyncio.sleep(STEP_SECONDS)
        except TimeoutError:
            left = [*self._answers, *self._reports]
            raise AssertionError(f"nobody asked for replies to {left}") from None

    async def _are_given(self) -> bool:
        for wait in await self._client.waits.list(limit=WAITS_MAX):
            place = wait.run.split("/")[0], wait.key  # children are asked for by their parents
            if place in self._answers:
                await self._decide(wait, place)
            elif place in self._reports:
                await self._report(wait, place)
        return not self._answers and not self._reports

    async def _decide(self, wait: WaitRecord, place: tuple[str, str]) -> None:
        for answer in self._answers.pop(place):
            await self._client.approvals.decide(f"{wait.run}:{wait.key}", **answer)

    async def _report(self, wait: WaitRecord, place: tuple[str, str]) -> None:
        """One at a time: the next may be about another pause, which has to open first."""
        report, *left = self._reports.pop(place)
        if left:
            self._reports[place] = left
        await self._client.runs.report(
            wait.run,
            wait.key,
            status=report.status,
            result=report.result,
            error=report.error,
            progress=report.progress,
            port=report.port,
        )
