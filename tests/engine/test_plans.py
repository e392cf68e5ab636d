"""Plans: what one commit writes, also when it is put together from several decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure.engine.cached_run import CachedRun, RunValues
from perdure.engine.plan import Plan, PlanContext
from perdure.engine.runs import Graphs
from perdure.model.failure import Failure
from perdure.model.ids import JobId
from perdure.model.job import Claim
from perdure.model.outcome import Failed, Retried
from perdure.model.payload import PlainCodec
from perdure.model.run import Finishes, Run
from perdure.model.trigger import MigrateRun
from tests.engine.graphs import chain, graph, mapped, signal, task
from tests.engine.played import Played, ended

CODEC = PlainCodec()
FAILURE = Failure(type="builtins.OSError", message="the line is busy")


def cached(played: Played) -> CachedRun:
    values = RunValues(CODEC)
    for number, json in played.log.values.items():
        values.put(number, json)
    stored = Run(
        id=played.id,
        namespace="default",
        flow=played.graph.name,
        version=played.graph.version,
        status=played.state.status,
        number=played.state.number,
        parent=None,
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        updated_at=datetime(2030, 1, 2, tzinfo=UTC),
        finished_at=None,
    )
    return CachedRun(stored, played.graph, played.state, values)


def test_what_a_new_version_starts_belongs_to_that_version():
    played = Played(chain(task("a"), signal("s")))
    played.finish("a", 1)
    new = graph(task("a"), signal("s"), task("audit"), edges="a s, a audit")
    run = cached(played)
    plan = Plan(run, PlanContext("default", Graphs([new]).known, CODEC))

    plan.apply(MigrateRun(to=new.ref))
    plan.build()
    plan.done()

    [job] = plan.commit.jobs
    assert (job.partition.task, job.partition.flow) == ("audit", new.text)
    assert (plan.commit.version, run.graph.version) == (new.version, new.version)


class TestAJobThatIsToBeTriedAgain:
    """What a commit settles is not touched by what it gives up, so the plan has to see to it."""

    def test_ends_with_its_run(self):
        played = Played(graph(task("a"), task("b"), edges=""))

        settled = self.settled_together(played, "a", "b")

        assert settled == {"a": Finishes(), "b": Finishes()}

    def test_ends_with_its_map(self):
        items = mapped("m", on_error="sorry")
        played = Played(graph(items, task("then"), edges="m.sorry then"), [1, 2])

        settled = self.settled_together(played, "m[0]", "m[1]")

        assert settled == {"m[0]": Finishes(), "m[1]": Finishes()}

    def settled_together(self, played: Played, again: str, for_good: str) -> dict[str, object]:
        """One commit: an attempt at one key is to be repeated, another one failed for good."""
        plan = Plan(cached(played), PlanContext("default", Graphs().known, CODEC))
        claims = {key: Claim(id=JobId(key), epoch=1) for key in (again, for_good)}
        retried = Retried(failure=FAILURE, delay=timedelta(seconds=1))
        plan.settle(claims[again], ended(again, retried), lambda _: False)
        plan.settle(claims[for_good], ended(for_good, Failed(failure=FAILURE)), lambda _: False)
        plan.build()
        return {str(each.claim.id): each.job_outcome for each in plan.commit.settlements}
