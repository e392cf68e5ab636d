"""The workings of a decision: events as they come about, and what they lead to.

A node starts when all edges that lead to it are decided and at least one was taken; it is skipped
when none was. How many are decided is counted as they are, so a decision looks at what changed and
at nothing else, however large the graph is.
"""

from __future__ import annotations

from perdure.rules.decision import Following
from perdure.rules.readiness import Counts, Standing
from perdure.rules.starting import Starting


class Deciding(Starting):
    """Collects one decision about one run."""

    def give_up(self) -> None:
        """Everything that is live ends here, and so does what this decision was to start."""
        decision = self.decision
        decision.clears = True
        for planned in (decision.schedules, decision.waits, decision.closes, decision.drops):
            planned.clear()
        decision.children.clear()

    # What follows when a node ends

    def after_end(self, node: str, port: str, value: bytes | None, ref: int = 0) -> Following:
        """What follows when ``node`` ends on ``port``, with the value of the event to come."""
        following = Following()
        if not self.graph.outgoing[node]:
            return following
        if value is not None:
            self.provide(value)
        self._ending = (node, port, ref or self.next_number)
        for ready in self._decide_edges(following, node, port):
            self.start(following, ready)
        return following

    def after_skip(self, node: str) -> Following:
        """What follows when ``node`` was reached and does not count."""
        following = Following()
        for ready in self._decide_edges(following, node, None, is_blocked=False):
            self.start(following, ready)
        return following

    def after_block(self, node: str) -> Following:
        """What follows when ``node`` failed and others are to be finished."""
        following = Following()
        for ready in self._decide_edges(following, node, None):
            self.start(following, ready)
        return following

    def after_recount(self, standing: Standing) -> Following:
        """What follows for the nodes that are not reached, when they were counted anew."""
        following = Following()
        following.arrived = dict(standing.arrived)
        following.skipped = list(standing.skipped)
        following.blocked = list(standing.blocked)
        for ready in standing.ready:
            self.start(following, ready)
        return following

    def _decide_edges(
        self, following: Following, node: str, port: str | None, *, is_blocked: bool | None = None
    ) -> list[str]:
        """Decide the edges that leave a node; the nodes that are ready by it.

        ``port`` None: it failed, and nothing behind it can run; or it was skipped.
        """
        blocks = port is None if is_blocked is None else is_blocked
        ready: list[str] = []
        ended: list[tuple[str, str | None, bool]] = [(node, port, blocks)]
        while ended:
            source, taken, is_blocked = ended.pop()
            for edge in self.graph.outgoing[source]:
                is_active = taken is not None and edge.port == taken
                counts = self._arrive(following, edge.target, is_active, is_blocked)
                if counts is None:
                    continue
                if counts[2]:
                    following.blocked.append(edge.target)
                    ended.append((edge.target, None, True))
                elif counts[1]:
                    ready.append(edge.target)
                else:
                    following.skipped.append(edge.target)
                    ended.append((edge.target, None, False))
        return ready

    def _arrive(
        self, following: Following, target: str, is_active: bool, is_blocked: bool
    ) -> Counts | None:
        """Count one more decided edge; the counts once all of the target's are."""
        degree = len(self.graph.incoming[target])
        if degree == 1:
            return 1, is_active, is_blocked
        known = following.arrived.get(target) or self.state.arrived.get(target) or (0, 0, 0)
        counts = (known[0] + 1, known[1] + is_active, known[2] + is_blocked)
        if counts[0] < degree:
            following.arrived[target] = counts
            return None
        following.arrived.pop(target, None)
        return counts
