"""Transactions on our own connections, which are not undone on a connection that is given up."""

from __future__ import annotations

from types import TracebackType

from perdure.store.postgres.connections import Connection, is_given_up


class Transacting:
    """``async with``: committed at its end, rolled back after an error.

    After a cancellation, or a statement without an answer, a rollback would wait for what is still
    under way, perhaps for ever. The connection is dropped then, and the transaction with it.
    """

    def __init__(self, connection: Connection, *, readonly: bool = False) -> None:
        self._transaction = connection.transaction(readonly=readonly)
        self._is_kept = True

    def undo(self) -> None:
        """Roll back at the end: there is nothing to keep, and no disk to wait for."""
        self._is_kept = False

    async def __aenter__(self) -> Transacting:
        await self._transaction.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None and self._is_kept:
            await self._transaction.commit()
        elif error is None or not is_given_up(error):
            await self._transaction.rollback()
