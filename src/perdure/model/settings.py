"""Settings of a run: how urgent it is, when and where it executes, and its bounds.

A flow has defaults, ``submit`` overrides them, and the run stores the result. They are not part of
the flow's version, so a changed bound leaves no run without workers.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN
from perdure.model.partition import Partition
from perdure.model.value import Value


class RunSettings(Value, omit_defaults=True):
    priority: int | None = None
    """None: the parent's, or the default."""
    queue: str | None = None
    """For nodes without a queue of their own."""
    tags: tuple[str, ...] = ()
    """For nodes without tags of their own."""
    default_queue: tuple[str, ...] = ()
    """Nodes whose own queue is ``default``: in a definition, that looks like none."""
    delay_ms: int | None = None
    """The run is queued for this long before it starts."""
    run_at: datetime | None = None
    """The same as a time."""
    timeout_ms: int | None = None
    """The run fails if it takes longer, counted from its start."""
    deadline: datetime | None = None
    """The same as a time."""
    timeout_counts_waiting: bool = True
    """Whether the clock of ``timeout_ms`` runs while the run's status is ``waiting``."""
    max_attempts: int | None = None
    """The run fails after this many failed attempts of its nodes."""
    max_running: int | None = None
    """Later runs of the flow with the same key are queued while this many have started."""
    running_key: str = ""
    """In a flow, a template over the input; in a run, its value."""
    sticky_ms: int | None = None
    """For how long a node waits for the worker that executed the previous one."""
    children: dict[str, RunSettings] = msgspec.field(default_factory=dict)
    """Of child runs, by node."""

    @property
    def is_delayed(self) -> bool:
        return self.delay_ms is not None or self.run_at is not None

    @property
    def starts_queued(self) -> bool:
        """Whether a run waits for its time or for a place before it starts."""
        return self.is_delayed or self.max_running is not None

    def place_key(self, flow: str) -> str | None:
        """Where places are counted: per flow, across versions; None if it needs none."""
        if self.max_running is None:
            return None
        return f"{flow}@{self.running_key}"  # no name of a flow contains @


NO_SETTINGS = RunSettings()


def encode_settings(settings: RunSettings) -> bytes | None:
    """The stored form; None for the defaults."""
    return None if settings == NO_SETTINGS else msgspec.json.encode(settings)


def decode_settings(data: bytes | None) -> RunSettings:
    """Decode the settings in a run's row. Unreadable ones become the defaults: the log has them,
    and one run must not break a list."""
    try:
        return NO_SETTINGS if data is None else _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return NO_SETTINGS


_decoder = msgspec.json.Decoder(RunSettings)


def effective_priority(run: int, task: int) -> int:
    """The priority of a job: that of its task, shifted by that of its run."""
    if run == PRIORITY_DEFAULT:  # the common case
        return task
    return min(max(run + task - PRIORITY_DEFAULT, PRIORITY_MIN), PRIORITY_MAX)


def inherited(parent: RunSettings, node: str) -> RunSettings:
    """The settings of the child runs of a node: its own, in the parent's place."""
    own = parent.children.get(node, NO_SETTINGS)
    if parent.queue is None and not parent.tags:  # the common case
        return own
    return msgspec.structs.replace(
        own, queue=own.queue or parent.queue, tags=own.tags or parent.tags
    )


def placed(partition: Partition, settings: RunSettings, node: str) -> Partition:
    """The partition of a node's jobs, with the run's queue and tags where it has none of its own.

    Not cached by graphs: tags may differ from run to run.
    """
    if settings.queue is None and not settings.tags:  # the common case
        return partition
    has_own_queue = partition.queue != DEFAULT_QUEUE or node in settings.default_queue
    queue = None if has_own_queue else settings.queue
    tags = () if partition.tags else settings.tags
    return msgspec.structs.replace(
        partition, queue=queue or partition.queue, tags=tags or partition.tags
    )
