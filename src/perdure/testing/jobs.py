"""A job in a kit: inspect it, and assert on it."""

from __future__ import annotations

from typing import Any

from perdure.client.handles import JOB_ENDED, AsyncJobHandle
from perdure.errors import ResultTimeout
from perdure.model.ids import JobId
from perdure.model.job import FailedAttempt, Status
from perdure.operations.records import JobRecord
from perdure.testing.runs import ANYTHING

_FAILED = (Status.FAILED, Status.DEAD)


class AsyncKitJob:
    """A job. It has already run as far as it can at this time."""

    def __init__(self, handle: AsyncJobHandle[Any]) -> None:
        self.handle = handle
        """The client's handle, for all other operations."""

    def __repr__(self) -> str:
        return repr(self.handle)

    @property
    def id(self) -> JobId:
        return self.handle.id

    async def status(self) -> Status:
        return await self.handle.status()

    async def record(self) -> JobRecord:
        return await self.handle.record()

    async def failures(self) -> list[FailedAttempt]:
        """Its failed attempts, oldest first."""
        return await self.handle.attempts()

    async def result(self) -> Any:
        """Its result. Raises ``ResultTimeout`` if it has not ended, or the error that it ended
        with."""
        status = await self.status()
        if status not in JOB_ENDED:
            raise ResultTimeout(job_id=self.id, timeout=0, status=status)
        return await self.handle.result()

    async def assert_completed(self, result: Any = ANYTHING) -> None:
        """Assert that it completed, with this result if given."""
        await self.assert_status(Status.COMPLETED)
        found = await self.handle.result()
        if result is not ANYTHING and found != result:
            raise AssertionError(await self._failure_text(f"gave {found!r}, not {result!r}"))

    async def assert_failed(self, message: str = "") -> None:
        """Assert that it failed permanently, with this text in its error if given."""
        record = await self.record()
        if record.status not in _FAILED:
            raise AssertionError(await self._failure_text("has not failed for good"))
        failure = (await self.failures())[-1].failure
        found = f"{failure.type}: {failure.message}"
        if message not in found:
            raise AssertionError(
                await self._failure_text(f"failed with {found!r}, without {message!r}")
            )

    async def assert_status(self, status: str) -> None:
        """Assert its status: ``completed``, ``scheduled``, ``waiting`` and so on."""
        if await self.status() != status:
            raise AssertionError(await self._failure_text(f"is not {status}"))

    async def _failure_text(self, wanted: str) -> str:
        record = await self.record()
        lines = [
            f"job {self.id} of task {record.task!r} {wanted}; it is {record.status} after "
            f"{record.attempt} attempts"
        ]
        if record.status is Status.SCHEDULED:
            lines.append(f"  its next attempt is due at {record.ready_at}")
        for each in await self.failures():
            failure = each.failure
            lines.append(f"  attempt {each.attempt}: {failure.type}: {failure.message}")
        return "\n".join(lines)
