"""Plans: what one commit writes when a run moves to another version."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.engine.cached_run import CachedRun
from perdure.engine.graphs import Graphs
from perdure.engine.new_jobs import Place
from perdure.engine.plan import Plan
from perdure.engine.run_values import RunValues
from perdure.model.flow import BuiltFlow
from perdure.model.happening import MigrationAsked
from perdure.model.payload import PlainCodec
from perdure.model.run import Run
from tests.engine.graphs import chain, graph, signal, task
from tests.engine.played import Played


def test_what_a_new_version_starts_belongs_to_that_version() -> None:
    played = Played(chain(task("a"), signal("s")))
    played.finish("a", 1)
    new = graph(task("a"), signal("s"), task("audit"), edges="a s, a audit")
    codec = PlainCodec()
    values = RunValues(codec)
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
    run = CachedRun(stored, played.graph, played.state, values)
    graphs = Graphs([BuiltFlow(new.definition, {}, {})])
    plan = Plan(run, Place("default", graphs, codec))

    plan.happen(MigrationAsked(to=new.ref))
    commit, _ = plan.commit()
    plan.done()

    [job] = commit.jobs
    assert (job.lane.task, job.lane.flow) == ("audit", new.text)
    assert (commit.version, run.graph.version) == (new.version, new.version)
