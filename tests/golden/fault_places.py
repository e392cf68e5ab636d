"""Where the faults of flows as data are: for each input the line, column and node of every fault.

``fault_places.json`` has inputs of tests of the loader, each with what was found. The wording of
a fault may change; its place is what an editor shows, and must not.

``python -m tests.golden.fault_places`` replays all inputs and prints what changed; ``--write``
keeps it. To add an input, add it to the file without places, and keep those that are found.
"""

from __future__ import annotations

import ast
import json
import sys
import tempfile
from pathlib import Path
from typing import Literal, TypedDict

from perdure import Flow, InvalidFlow, load_flow
from perdure.diagnostics import Fault, Source
from perdure.errors import node_of
from perdure.flows.built import BuiltFlow
from tests.yaml.tasks import TASKS, Translate, child

GOLDEN = Path(__file__).with_suffix(".json")

Place = list[int | str]
"""Line and column, counted from 1 or both 0 where there is none; and the node, or ""."""


class Input(TypedDict):
    format: Literal["yaml", "json", "data"]
    text: str
    """What a file would have; or plain data as a Python literal."""
    places: list[Place]


def golden_inputs() -> list[Input]:
    inputs: list[Input] = json.loads(GOLDEN.read_text("utf-8"))
    return inputs


def places_of(given: Input) -> list[Place]:
    try:
        loaded(given)
    except InvalidFlow as error:
        return [_place(fault) for fault in error.faults]
    return []


def _place(fault: Fault) -> Place:
    source = fault.source or Source()
    return [source.line, source.column, node_of(fault)]


def loaded(given: Input) -> BuiltFlow:
    if given["format"] == "yaml":
        return Flow.from_yaml(given["text"], tasks=TASKS, node_types=[Translate], flows=[child])
    if given["format"] == "data":
        data = ast.literal_eval(given["text"])
        return Flow.from_dict(data, tasks=TASKS, node_types=[Translate], flows=[child])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.json"
        file.write_text(given["text"], "utf-8")
        return load_flow(file, tasks=TASKS, node_types=[Translate], flows=[child])


def main() -> None:
    inputs = golden_inputs()
    for given in inputs:
        if (found := places_of(given)) != given["places"]:
            print(f"{given['text']}\n  {given['places']} -> {found}")
            given["places"] = found
    if "--write" in sys.argv[1:]:
        write(inputs)


def write(inputs: list[Input]) -> None:
    lines = [json.dumps(given) for given in inputs]
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
