"""Convert a snapshot of a run to lines, one per node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from perdure.cli.renderer import CliRenderer, one_line
from perdure.cli.views.runs import failure_line
from perdure.model.graph import Graph
from perdure.model.ids import Key
from perdure.model.job import CLAIMED, Job, Status
from perdure.model.run import MapState, NodeState, NodeStatus, Wait, WaitType
from perdure.model.text import visible
from perdure.model.times import ago, ahead
from perdure.model.value import Value
from perdure.model.worker import WorkerState, is_live
from perdure.operations.insight.explain import wait_actions
from perdure.operations.records import RunSnapshot

BRANCH, LAST_BRANCH, VERTICAL, CLEAR = "├ ", "╰ ", "│ ", "  "
CONTINUED = str.maketrans("├╰", "│ ")
"""The guide before a node, mapped to the guide before its detail lines."""


class Place(Value):
    """A node, and the guide before its name that shows its branch."""

    node: str
    guide: str = ""


def places(graph: Graph) -> list[Place]:
    """Lay out all nodes: branches indented below each other, joins back at the level of their fork.

    A join is placed under its immediate dominator, however entangled the branches between are.
    """
    before = {id: _sources(graph, id) for id in graph.nodes}
    owners = _owners(before)
    below: dict[str | None, list[str]] = {}
    for id, owner in owners.items():
        below.setdefault(owner, []).append(id)
    return list(_walked(graph, before, below))


def _sources(graph: Graph, id: str) -> list[str]:
    return list(dict.fromkeys(edge.source for edge in graph.incoming[id]))


def _owners(before: dict[str, list[str]]) -> dict[str, str | None]:
    """The immediate dominator of each node; None if it has none."""
    owners: dict[str, str | None] = {}
    depths: dict[str | None, int] = {None: 0}
    for id, sources in before.items():  # in topological order
        known: list[str | None] = [source for source in sources if source in owners]
        owner = known[0] if known else None
        for other in known[1:]:
            owner = _shared(owner, other, owners, depths)
        owners[id] = owner
        depths[id] = depths[owner] + 1
    return owners


def _shared(
    one: str | None,
    other: str | None,
    owners: dict[str, str | None],
    depths: dict[str | None, int],
) -> str | None:
    while one != other:
        if depths[one] < depths[other]:
            one, other = other, one
        assert one is not None
        one = owners[one]
    return one


def _walked(
    graph: Graph, before: dict[str, list[str]], below: dict[str | None, list[str]]
) -> Iterator[Place]:
    to_visit = [(id, "", "") for id in reversed(below.get(None, []))]
    while to_visit:
        id, guide, rest = to_visit.pop()
        yield Place(node=id, guide=guide)
        branches = [each for each in below.get(id, []) if len(before[each]) == 1]
        joins = [each for each in below.get(id, []) if len(before[each]) > 1]
        is_fork = len({edge.target for edge in graph.outgoing[id]}) > 1
        following = []
        for number, branch in enumerate(branches, start=1):
            if not is_fork:
                following.append((branch, rest, rest))
            elif number < len(branches):
                following.append((branch, rest + BRANCH, rest + VERTICAL))
            else:
                following.append((branch, rest + LAST_BRANCH, rest + CLEAR))
        following += [(join, rest, rest) for join in joins]
        to_visit.extend(reversed(following))


PARTS_MAX = 8
"""Maximum items shown below a map."""


class Look(StrEnum):
    """The look of a node: its status, with live ones differentiated."""

    TO_COME = "to come"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    WAITING = "waiting"
    ASKING = "asking"
    PAUSED = "paused"
    UNDOING = "undoing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"


LIVE = frozenset(
    {Look.QUEUED, Look.RUNNING, Look.RETRYING, Look.WAITING, Look.ASKING, Look.UNDOING}
)
_LOOKS = {
    WaitType.APPROVAL: Look.ASKING,
    WaitType.CHILD: Look.RUNNING,
    WaitType.EXTERNAL: Look.WAITING,
    WaitType.SIGNAL: Look.WAITING,
    WaitType.TIMER: Look.WAITING,
}
_BY_STATUS = {
    NodeStatus.COMPLETED: Look.COMPLETED,
    NodeStatus.FAILED: Look.FAILED,
    NodeStatus.SKIPPED: Look.SKIPPED,
    NodeStatus.BLOCKED: Look.BLOCKED,
    NodeStatus.CANCELLED: Look.CANCELLED,
}


class Line(Value):
    """A node, or an item of a map."""

    name: str
    look: Look
    guide: str = ""
    is_part: bool = False
    share: float | None = None
    """Progress from 0 to 1, if known."""
    amount: str = ""
    """Progress as text: ``17/24``, ``40%``, ``iteration 3``."""
    note: str = ""
    """The worker, and since when."""
    remark: str = ""
    """Text that needs attention: a question, an error."""
    command: str = ""
    """The command that lets it continue."""


def lines_of(snapshot: RunSnapshot, options: str = "") -> list[Line]:
    """All nodes of the run in flow order, with their running items.

    ``options`` are appended to suggested commands.
    """
    jobs: dict[str, list[tuple[Key, Job]]] = {}
    for job in snapshot.jobs:
        if job.node is not None and job.node.key in snapshot.state.live:
            key = Key.parse(job.node.key)
            jobs.setdefault(key.node, []).append((key, job))
    waits: dict[str, list[Wait]] = {}
    for wait in snapshot.waits:
        key = Key.parse(wait.key)
        if wait.key in snapshot.state.live and not key.part:
            waits.setdefault(key.node, []).append(wait)
    renderer = CliRenderer(options)
    lines: list[Line] = []
    for place in places(snapshot.graph):
        node = place.node
        at = _NodeView(snapshot, node, jobs.get(node, []), waits.get(node, []), renderer)
        lines += at.lines(place.guide)
    return lines


class _NodeView:
    """A node of a snapshot, with its jobs and waits."""

    def __init__(
        self,
        snapshot: RunSnapshot,
        id: str,
        jobs: list[tuple[Key, Job]],
        waits: list[Wait],
        renderer: CliRenderer,
    ) -> None:
        self._snapshot = snapshot
        self._renderer = renderer
        self._id = id
        self._state: NodeState | None = snapshot.state.nodes.get(id)
        self._map: MapState | None = snapshot.state.maps.get(id)
        self._is_undone = any(key.part == "undo" for key, _ in jobs)
        self._jobs = [(key, job) for key, job in jobs if key.part in ("", "check", "undo")]
        self._waits = waits

    def lines(self, guide: str) -> Iterator[Line]:
        look = self._look()
        share, amount = self._done(look)
        remark, command = self._remark(look)
        yield Line(
            name=visible(self._id),
            look=look,
            guide=guide,
            share=share,
            amount=amount,
            note=one_line(self._note(look)),
            remark=one_line(remark),
            command=visible(command),
        )
        if self._map is not None and look in LIVE:
            at_work = [each for each in self._jobs if look_of(each[1]) is not Look.QUEUED]
            at_work.sort(key=lambda each: self._interest(*each), reverse=True)
            for key, job in at_work[:PARTS_MAX]:
                yield self._part(key, job, guide)

    def _look(self) -> Look:
        if self._state is None:
            return Look.TO_COME
        if self._state.status is not NodeStatus.LIVE:
            return Look.UNDOING if self._is_undone else _BY_STATUS[self._state.status]
        if self._snapshot.state.is_paused:
            return Look.PAUSED
        looks = {look_of(job) for _, job in self._jobs} | {
            _LOOKS[wait.type] for wait in self._waits
        }
        for look in (Look.RUNNING, Look.ASKING, Look.WAITING, Look.RETRYING):
            if look in looks:
                return look
        return Look.QUEUED

    def _done(self, look: Look) -> tuple[float | None, str]:
        if self._map is not None:
            done, count = len(self._map.refs), self._map.count
            return (done / count if count and look in LIVE else None), f"{done}/{count}"
        if self._state is not None and self._state.iteration:
            return None, f"iteration {self._state.iteration}"
        return _progress(self._jobs[0][1]) if self._jobs else (None, "")

    def _note(self, look: Look) -> str:
        if look not in LIVE:
            port = "" if self._state is None else self._state.port
            return f"port {port}" if port else ""
        if self._map is not None:
            looks = [look_of(job) for _, job in self._jobs]
            return _counted([*looks, *(_LOOKS[wait.type] for wait in self._waits)])
        return _who(self._jobs[0][1], self._snapshot.now) if self._jobs else ""

    def _remark(self, look: Look) -> tuple[str, str]:
        if self._waits and look in LIVE:
            return waits_for(self._waits[0], self._snapshot.now, self._renderer)
        failure = self._snapshot.failures.get(self._id)
        if look is Look.FAILED:
            failure = failure or self._snapshot.state.failure
            return ("" if failure is None else failure_line(failure)), ""
        if self._map is not None or not self._jobs:
            return "", ""
        return _trouble(self._snapshot, *self._jobs[0]), ""

    def _interest(self, key: Key, job: Job) -> tuple[bool, bool, float]:
        """Sort key of items: failing, then taken over, then nearly done first."""
        return bool(_trouble(self._snapshot, key, job)), job.crashes > 0, job.progress.percent

    def _part(self, key: Key, job: Job, guide: str) -> Line:
        share, amount = _progress(job)
        return Line(
            name=visible(key.text),
            look=look_of(job),
            guide=guide.translate(CONTINUED) + "  ",
            is_part=True,
            share=share,
            amount=amount,
            note=one_line(_who(job, self._snapshot.now)),
            remark=one_line(_trouble(self._snapshot, key, job)),
        )


def look_of(job: Job) -> Look:
    """The look of a live job of a run."""
    if job.status in CLAIMED:
        return Look.RUNNING
    return Look.RETRYING if job.status is Status.SCHEDULED and job.failures else Look.QUEUED


def is_silent(worker: WorkerState, now: datetime) -> bool:
    """Whether its worker missed heartbeats, of which there are several per lease."""
    return not is_live(worker, now, leases=0.5)


def _progress(job: Job) -> tuple[float | None, str]:
    percent = job.progress.percent
    is_known = job.status in CLAIMED and percent
    return (percent / 100, f"{percent:.0f}%") if is_known else (None, "")


def _who(job: Job, now: datetime) -> str:
    parts = []
    if job.status in CLAIMED:
        since = "" if job.started_at is None else f" {ago(job.started_at, now)}"
        parts.append(f"{job.worker}{since}")
    if job.crashes:
        parts.append("taken over" if job.status in CLAIMED else "its worker crashed")
    if job.attempt > 1:
        parts.append(f"attempt {job.attempt}")
    if job.status in CLAIMED and job.progress.message:
        parts.append(job.progress.message)
    return ", ".join(parts)


def _counted(looks: Sequence[Look]) -> str:
    counts = Counter(looks)
    order = sorted(counts, key=lambda look: look is not Look.RUNNING)
    return ", ".join(f"{counts[look]} {look}" for look in order)


def _trouble(snapshot: RunSnapshot, key: Key, job: Job) -> str:
    """Why a job is not simply running."""
    if job.status in CLAIMED:
        return _silence(snapshot, job)
    failure = snapshot.failures.get(key.text)
    if look_of(job) is not Look.RETRYING or failure is None:
        return ""
    return f"{failure_line(failure)}; again in {ahead(job.ready_at, snapshot.now)}"


def _silence(snapshot: RunSnapshot, job: Job) -> str:
    for worker in snapshot.workers:
        if worker.info.id == job.worker and is_silent(worker, snapshot.now):
            left = ahead(job.lease_until or snapshot.now, snapshot.now)
            return f"{job.worker} is silent; others take over in {left}"
    return ""


def waits_for(wait: Wait, now: datetime, renderer: CliRenderer) -> tuple[str, str]:
    """Describe a wait, with the command that ends it."""
    until = "" if wait.due_at is None else f", {ahead(wait.due_at, now)} at most"
    command = " or ".join(map(renderer.action, wait_actions(wait)))
    match wait.type:
        case WaitType.APPROVAL:
            who = ", ".join(wait.deciders) or "anyone"
            return f"asks {who}: {wait.name}{until}", command
        case WaitType.SIGNAL:
            return f"waits for the signal {wait.name}{until}", command
        case WaitType.EXTERNAL:
            return f"waits for a report{until}", command
        case WaitType.CHILD:
            return f"waits for the run {wait.name}", command
        case WaitType.TIMER:
            left = "" if wait.due_at is None else ahead(wait.due_at, now)
            return f"continues in {left}", command
