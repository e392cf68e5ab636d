"""The faults of flows as data: for each input the code and place of every fault that is found.

``fault_places.json`` has flows that are wrong, as text or as plain data, and each of their faults
as ``line:column path code``; the line and column are ``0:0`` where there is no file. The wording of
a fault may change; programs match on its code, and an editor shows its place.

``python -m tests.golden.fault_places`` replays all inputs and prints what changed; ``--write``
keeps it. To add an input, add it to the file without faults, and keep those that are found.
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
from perdure.flows.built import BuiltFlow
from tests.yaml.tasks import TASKS, Translate, child

GOLDEN = Path(__file__).with_suffix(".json")


class Input(TypedDict):
    format: Literal["yaml", "json", "data"]
    text: str
    """What a file would have; or plain data as a Python literal."""
    faults: list[str]


def golden_inputs() -> list[Input]:
    inputs: list[Input] = json.loads(GOLDEN.read_text("utf-8"))
    return inputs


def faults_of(given: Input) -> list[str]:
    try:
        loaded(given)
    except InvalidFlow as error:
        return [_told(fault) for fault in error.faults]
    return []


def _told(fault: Fault) -> str:
    source = fault.source or Source()
    path = ".".join(map(str, fault.where)) or "-"
    return f"{source.line}:{source.column} {path} {fault.code}"


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
        if (found := faults_of(given)) != given["faults"]:
            print(f"{given['text']}\n  {given['faults']} -> {found}")
            given["faults"] = found
    if "--write" in sys.argv[1:]:
        write(inputs)


def write(inputs: list[Input]) -> None:
    lines = [json.dumps(given) for given in inputs]
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
