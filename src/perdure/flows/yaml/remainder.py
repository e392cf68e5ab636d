"""What is left of a node without the parts that have the wrong shape, to look for more faults in.

A part that others lean on has something put in its place, so that they are not told to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from perdure.expr.path import Path
from perdure.flows.yaml.format import CONFIGS

_Data = Mapping[str, Any]

_NEEDED_KEYS = ("", "config", "task", "inputs")
_PORT_KEYS = ("on_error", "on_timeout", "ports")

_STAND_INS: Mapping[str, _Data] = {
    "loop": {"until": "done"},
    "signal": {"timeout": "36500d"},
    "approval": {"title": "?", "deadline": "36500d", "deciders": ["?"]},
}
_DISPENSABLE: Mapping[str, tuple[str, ...]] = {
    "map": ("over", "concurrency"),
    "loop": ("max_iterations",),
    "signal": ("name", "where"),
    "approval": (
        "message", "form", "show", "data", "policy", "reminders", "escalate", "notify",
    ),
}  # fmt: skip
"""Settings that nothing else in the flow depends on."""


@dataclass(frozen=True, slots=True)
class Remainder:
    data: _Data
    lost: frozenset[str]
    """The settings of the config that are not there as they were meant."""
    is_usable: bool
    """Whether there is enough of it to make a node of."""
    is_whole: bool
    """Whether it tells all ports of the node, and everything that the node does with its inputs."""


def remainder(data: _Data, kind: str, places: Iterable[Path]) -> Remainder:
    """The node without what is wrong at these places."""
    places = list(places)
    config = data.get("config")
    is_apart = kind in CONFIGS and kind != "task" and isinstance(config, Mapping)
    inside = [place for place in places if is_apart and place[:1] == ("config",)]
    inputs = [place for place in places if _is_one_input(place)]
    others = [place for place in places if place not in inside and place not in inputs]
    wrong = {str(place[0]) if place else "" for place in others}
    left = {key: value for key, value in data.items() if key not in wrong}
    if inputs and "inputs" in left:
        left["inputs"] = {**left["inputs"], **{str(place[1]): "input" for place in inputs}}
    lost = _lost(kind, config or {}, inside) if inside else frozenset()
    if inside:
        left["config"] = _config(kind, left, lost)
    ports_lost = not wrong.isdisjoint(_PORT_KEYS)
    can_do_without = {*_STAND_INS.get(kind, ()), *_DISPENSABLE.get(kind, ())}
    return Remainder(
        data=left,
        lost=lost,
        is_usable=bool(kind)
        and wrong.isdisjoint(_NEEDED_KEYS)
        and lost <= can_do_without
        and not (ports_lost and kind in CONFIGS and kind != "task"),
        is_whole=not inside and not ports_lost,
    )


def _is_one_input(place: Path) -> bool:
    """It stays declared, so that what names it is not told to be wrong too."""
    return len(place) > 1 and place[0] == "inputs"


def _lost(kind: str, config: _Data, places: Iterable[Path]) -> frozenset[str]:
    known = CONFIGS[kind]["properties"]
    lost: set[str] = set()
    for place in places:
        if len(place) == 1:
            lost.update(each for each in CONFIGS[kind].get("required", ()) if each not in config)
        elif place[1] in known:
            lost.add(str(place[1]))
        else:  # a misspelt one may be what is missing
            free = [each for each in known if each not in config]
            lost.update(get_close_matches(str(place[1]), free, n=1))
    return frozenset(lost)


def _config(kind: str, data: _Data, lost: frozenset[str]) -> dict[str, Any]:
    known = CONFIGS[kind]["properties"]
    config = {key: data["config"][key] for key in data["config"] if key in known}
    for setting in lost:
        config.pop(setting, None)
        if setting in _STAND_INS.get(kind, {}):
            config[setting] = _STAND_INS[kind][setting]
    if kind == "map" and "over" in lost and data.get("inputs"):
        config["over"] = next(iter(data["inputs"]))
    return config
