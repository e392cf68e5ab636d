"""Encode and decode snapshots of a run's state, so that loading folds only the later events.

A snapshot is only a cache of the log. One that cannot be read, or fails its checks, is ignored, and
the state is folded from the events.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import asdict, replace

from perdure.model.ids import RunId
from perdure.model.run import (
    ApprovalState,
    LiveType,
    MapState,
    NodeState,
    PauseState,
    RunState,
    Snapshot,
)
from perdure.model.value import Value

FORMAT = 4
SPACING = 200
"""Minimum number of events between snapshots."""
SHARE = 4
"""Take a snapshot once the events since the last one reach this fraction of the state's size: the
cost per event stays constant, and so does the share of the log left to fold."""


class _Map(Value):
    count: int
    launched: int
    refs: dict[int, int]
    failed: dict[int, int] = msgspec.field(default_factory=dict)
    size_bytes: int = 0


class _PlainMaps(Value):
    """The maps of a state in JSON form."""

    nodes: dict[str, NodeState]
    maps: dict[str, _Map]
    edge_counts: dict[str, tuple[int, int, int]]
    live: dict[str, LiveType]
    signals: dict[str, tuple[int, ...]]
    children: dict[str, RunId]
    pauses: dict[str, tuple[PauseState, ...]]
    progress: dict[str, int]
    early_reports: dict[str, int]
    reports: dict[str, tuple[str, ...]]
    approvals: dict[str, ApprovalState]
    external_failures: dict[str, int]


_MAPS = _PlainMaps.__struct_fields__


class _StoredSnapshot(Value):
    format: int
    checksum: int
    state: msgspec.Raw


def is_due(state: RunState, last: int) -> bool:
    """Whether to take a snapshot; ``last`` is the event of the latest one."""
    since = state.number - last
    if since < SPACING:  # the common case
        return False
    items = sum(len(each.refs) for each in state.maps.values())
    return since * SHARE >= len(state.nodes) + len(state.live) + items + len(state.undoes)


def take(state: RunState) -> Snapshot:
    data = msgspec.json.encode(_plain(state))
    kept = _StoredSnapshot(format=FORMAT, checksum=zlib.crc32(data), state=msgspec.Raw(data))
    return Snapshot(number=state.number, data=msgspec.json.encode(kept))


def restore(snapshot: Snapshot) -> RunState | None:
    """The state of a snapshot; None if it cannot be trusted."""
    try:
        kept = msgspec.json.decode(snapshot.data, type=_StoredSnapshot)
        if kept.format != FORMAT or kept.checksum != zlib.crc32(kept.state):
            return None
        state = _state(bytes(kept.state))
    except (msgspec.MsgspecError, ValueError, KeyError):
        return None
    return state if state.number == snapshot.number else None


def _plain(state: RunState) -> dict[str, Any]:
    fields = asdict(state)
    for name in _MAPS:
        fields[name] = dict(fields[name])
    fields["maps"] = {
        id: {
            "count": each.count,
            "launched": each.launched,
            "refs": dict(each.refs),
            **({"failed": dict(each.failed)} if each.failed else {}),
            **({"size_bytes": each.size_bytes} if each.size_bytes else {}),
        }
        for id, each in fields["maps"].items()
    }
    return fields


def _state(data: bytes) -> RunState:
    fields = msgspec.json.decode(data)
    plain = msgspec.convert({name: fields.pop(name) for name in _MAPS}, _PlainMaps, str_keys=True)
    bare = msgspec.convert(fields, RunState)
    maps = {
        id: MapState(
            count=each.count,
            launched=each.launched,
            refs=Map(each.refs),
            failed=Map(each.failed),
            size_bytes=each.size_bytes,
        )
        for id, each in plain.maps.items()
    }
    kept = {name: Map(getattr(plain, name)) for name in _MAPS}
    return replace(bare, **(kept | {"maps": Map(maps)}))
