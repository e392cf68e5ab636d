"""Lines of a shell: commands with arguments that nobody expects."""

from __future__ import annotations

from hypothesis import strategies as st

from proof.fuzz.calls import RUNS
from proof.strategies import odd_texts

FLOWS = ("proof.fuzz.work:chain", "proof.fuzz.work:asking")
COMMANDS: dict[str, tuple[str, ...]] = {
    "jobs list": ("--status", "--queue", "--task", "--group", "--limit", "--before"),
    "jobs show": (),
    "jobs explain": (),
    "jobs retry": (),
    "jobs disable": (),
    "jobs enable": (),
    "jobs resume": (),
    "jobs abort": ("--group",),
    "runs list": ("--status", "--flow", "--limit", "--before"),
    "runs show": (),
    "runs events": (),
    "runs explain": (),
    "runs timeline": ("--format",),
    "runs lineage": (),
    "runs submit": ("--id", "--on-conflict"),
    "runs signal": ("--by",),
    "runs pause": ("--reason", "--by"),
    "runs unpause": ("--by",),
    "runs cancel": ("--reason", "--by"),
    "runs retry": ("--by",),
    "runs fork": ("--after", "--patch", "--id", "--by"),
    "runs migrate": ("--to", "--by"),
    "queues pause": ("--by",),
    "queues resume": (),
    "schedules list": (),
    "schedules show": (),
    "schedules pause": ("--by",),
    "schedules resume": (),
    "schedules trigger": ("--by",),
    "schedules delete": (),
    "flows list": (),
    "flows show": (),
    "flows graph": ("--format",),
    "inbox": ("--for", "--flow", "--limit", "--after"),
    "decide": ("--data", "--field", "--by", "--role", "--note"),
    "report": ("--status", "--result", "--error", "--progress", "--port", "--key", "--by"),
    "broadcast": ("--flow", "--by"),
    "signal": ("--by",),
    "submit": ("--id", "--on-conflict"),
    "explain": (),
    "check": (),
    "doctor": (),
    "verify": ("--grace", "--namespace"),
    "prune": ("--older-than", "--status"),
    "waits": ("--kind", "--run", "--name", "--limit"),
    "depth": (),
    "workers": (),
}
LEFT_OUT = {
    "init": "writes a folder",
    "export": "writes a file",
    "import": "reads a file",
    "validate": "reads files, whose texts are a kind of their own",
    "dev": "starts processes",
    "worker": "goes on until it is told to stop",
    "run": "goes on until the run ends",
    "runs watch": "goes on until the run ends",
    "jobs watch": "goes on until the job ends",
}
_POSITIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "runs signal": (("run-asking",), ("go",), ("1",)),
    "runs submit": (FLOWS, ("1",)),
    "submit": (FLOWS, ("1",)),
    "signal": (("run-asking",), ("go",), ("1",)),
    "explain": (RUNS,),
    "check": (FLOWS,),
    "flows": (FLOWS,),
    "queues": (("default",),),
    "decide": (("run-deciding:review",), ("approve", "reject")),
    "report": (("run-outer",), ("outside",)),
    "broadcast": (("go",), ("1",)),
    "jobs": (("waiting",),),
    "runs": (RUNS,),
    "schedules": (("nightly", "hourly"),),
}
"""What a command, or one of its group, is likely to be called with."""
_LIKELY = [*RUNS, "run-deciding:review", "nightly", "go", "outside", "approve", "1", "{}", "failed"]


def is_passable(text: str) -> bool:
    """No shell can pass a zero byte, nor what is in no encoding."""
    return "\x00" not in text and not any(0xD800 <= ord(each) < 0xE000 for each in text)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    values = st.sampled_from(_LIKELY) | odd_texts().filter(is_passable)
    options = draw(st.lists(st.sampled_from(COMMANDS[name] or ("--json",)), max_size=1))
    told = [part for option in options for part in _option(draw, option, values)]
    as_json = ["--json"] if draw(st.booleans()) and "--json" not in told else []
    likely = _POSITIONS.get(name, _POSITIONS.get(name.split()[0], ()))
    if name.endswith("list"):
        likely = ()
    positions = [draw(st.sampled_from(each)) for each in likely]
    if draw(st.booleans()):
        positions = draw(st.lists(values, max_size=3))
    return [*name.split(), *told, *as_json, "--", *positions]


def _option(draw: st.DrawFn, option: str, values: st.SearchStrategy[str]) -> list[str]:
    return [option] if option == "--json" else [f"{option}={draw(values)}"]
