"""How runs go on: one statement for a batch of steps, and a transaction where they do more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.model.run import CommitAnswer, CommitResult, RunCommit
from perdure.store.postgres.commit_batch import NOW, RANK, CommitBatch
from perdure.store.postgres.connections import Connection, Record
from perdure.store.postgres.effects import Effects, has_effects, takes_jobs
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.session import Session
from perdure.store.postgres.transacting import Transacting


async def commit_runs(
    session: Session, commits: Sequence[RunCommit], lanes: Sequence[str] = ()
) -> CommitAnswer:
    results: dict[int, CommitResult] = {}
    rank, now = None, None
    for steps in _one_of_each_run(commits):
        batch = CommitBatch(steps)
        row, found = await _commit(session, batch, lanes)
        results |= {id(commit): each for commit, each in zip(batch.commits, found, strict=True)}
        rank, now = row[RANK], row[NOW]
    return CommitAnswer(
        results=[results[id(commit)] for commit in commits], most_urgent_rank=rank, now=now
    )


async def _commit(
    session: Session, batch: CommitBatch, lanes: Sequence[str]
) -> tuple[Record, list[CommitResult]]:
    columns = tuple(batch.columns(session.moment(), lanes))
    is_more = any(has_effects(commit) for commit in batch.commits)

    async def work(connection: Connection, _: bool) -> tuple[Record, list[CommitResult], Moves]:
        moves = Moves()
        if not is_more:
            row = await connection.fetchrow(session.statements["commit_runs"], *columns)
            results = batch.results(row)
        else:
            async with Transacting(connection):
                effects = Effects(connection, session.statements, moves)
                if any(takes_jobs(commit) for commit in batch.commits):
                    await effects.lock(batch)
                row = await connection.fetchrow(session.statements["commit_runs"], *columns)
                results = batch.results(row)
                await effects.write(batch.new(row, results), row[NOW])
        batch.note(row, results, moves)
        return row, results, moves

    row, results, moves = await session.connections.run(work)
    session.publish_moves(moves)
    return row, results


def _one_of_each_run(commits: Sequence[RunCommit]) -> Iterator[list[RunCommit]]:
    """Rounds in which each run goes one step; a second step of a run comes after the first."""
    left = list(commits)
    while left:
        steps: dict[tuple[str, str], RunCommit] = {}
        for commit in left:
            steps.setdefault((commit.namespace, commit.run), commit)
        yield list(steps.values())
        left = [each for each in left if steps[each.namespace, each.run] is not each]
