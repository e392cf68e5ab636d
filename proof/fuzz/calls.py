"""Calls of the client and command lines with unexpected arguments."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click
from hypothesis import strategies as st

from perdure import Concurrency, Retry
from perdure.cli.app import ALIASES, SUMMARIES, command_named
from proof.fuzz import work
from proof.strategies import (
    answers,
    any_crons,
    any_durations,
    any_moments,
    any_texts,
    any_timezones,
    durations,
    json_values,
    names,
    odd_texts,
    odd_values,
)

Anything = st.SearchStrategy[Any]

RUNS = ("run-chain", "run-asking", "run-deciding", "run-delaying", "run-nesting", "run-outer")
JOBS = ["waiting", "later", "done", "failed"]
"""Jobs of the scene, by their placeholders until their ids are known."""

ODD: Anything = any_texts() | odd_values() | any_durations() | any_moments()
"""Unexpected values for any argument."""


@dataclass(frozen=True)
class Part:
    """Likely and unlikely values of one argument."""

    likely: Anything
    odd: Anything = ODD


@dataclass(frozen=True)
class Call:
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __repr__(self) -> str:
        parts = [reprlib.repr(each) for each in self.args]
        parts += [f"{name}={reprlib.repr(each)}" for name, each in self.kwargs.items()]
        return f"client.{self.method}({', '.join(parts)})"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))


def one_of(*values: Any) -> Part:
    return Part(st.sampled_from(values))


@dataclass(frozen=True)
class Method:
    positions: tuple[Part, ...] = ()
    needed: Mapping[str, Part] = field(default_factory=dict)
    names: Mapping[str, Part] = field(default_factory=dict)


NAME = Part(names(), any_texts())
TEXT = Part(names() | st.text(max_size=30), any_texts())
WHO = Part(st.just("ann") | names(), any_texts())
RUN_ID = Part(st.sampled_from([*RUNS, "run-nesting/asking"]), any_texts())
JOB_ID = Part(st.sampled_from(JOBS), any_texts())
TASK = Part(st.sampled_from([*work.TASKS, "echo", "limited"]), any_texts())
FLOW = Part(st.sampled_from([*work.FLOWS, "chain", "asking"]), any_texts())
LIMIT = Part(st.integers(1, 100), st.integers(-(2**70), 2**70) | any_texts())
SCHEDULE = Part(st.sampled_from(["nightly", "hourly"]), any_texts())
NODE = one_of("echo", "go", "review", "outside", "asking")
STATUS = one_of("waiting", "completed", "running", "failed")
PAYLOAD = Part(json_values(), odd_values())
NAMED = Part(st.just({}) | st.dictionaries(st.just("value"), json_values(), max_size=1))
DURATION = Part(durations(), any_durations())
MOMENT = Part(st.sampled_from([datetime(2030, month, 3, tzinfo=UTC) for month in (1, 2, 9)]))
APPROVAL = one_of("run-deciding:review")
CHOICE = Part(st.booleans(), any_texts())

OPTIONS: dict[str, Part] = {
    "fingerprint": Part(names() | st.just(lambda *_: "same"), any_texts()),
    "on_conflict": one_of("use_existing", "fail", "replace"),
    "group": NAME,
    "delay": DURATION,
    "run_at": MOMENT,
    "deadline": Part(durations(), any_durations() | any_moments()),
    "max_attempts": Part(st.integers(1, 5), st.integers() | any_texts()),
    "priority": Part(st.integers(1, 5), st.integers() | any_texts()),
    "queue": NAME,
    "retries": Part(st.integers(0, 3) | st.just(Retry(1)), st.integers() | any_texts()),
    "timeout": DURATION,
    "tags": Part(st.lists(names(), max_size=3), st.lists(any_texts(), max_size=3) | any_texts()),
}


def _options(parts: Mapping[str, Part]) -> Part:
    """Options as one argument."""
    return Part(
        st.fixed_dictionaries({}, optional={name: part.likely for name, part in parts.items()}),
        st.fixed_dictionaries({}, optional={name: part.odd for name, part in parts.items()})
        | st.dictionaries(odd_texts(), ODD, max_size=2)
        | ODD,
    )


CALL_OPTIONS = _options(OPTIONS)
RUN_OPTIONS = {
    name: OPTIONS[name]
    for name in (
        "priority",
        "queue",
        "tags",
        "delay",
        "run_at",
        "timeout",
        "deadline",
        "max_attempts",
    )
} | {
    "timeout_counts_waiting": CHOICE,
    "max_running": Part(st.integers(1, 5) | st.just(Concurrency(2)), st.integers() | any_texts()),
    "sticky": DURATION,
}
CURSOR = Part(st.none(), any_texts())

METHODS: dict[str, Method] = {
    "jobs.cancel": Method((JOB_ID,)),
    "jobs.cancel_group": Method((NAME,)),
    "approvals.get": Method((APPROVAL,)),
    "runs.broadcast": Method((one_of("go"), PAYLOAD), names={"flow": FLOW, "by": WHO}),
    "runs.cancel": Method((RUN_ID,), names={"reason": TEXT, "by": WHO, "compensate": CHOICE}),
    "jobs.count": Method(names={"status": STATUS, "queue": NAME, "task": TASK, "group": NAME}),
    "store.count_finished": Method(needed={"older_than": DURATION}, names={"status": STATUS}),
    "runs.count": Method(names={"status": STATUS, "flow": FLOW}),
    "approvals.decide": Method(
        (APPROVAL, one_of("approve", "reject")),
        names={
            "data": Part(answers()),
            "by": WHO,
            "roles": Part(st.lists(names(), max_size=2)),
            "note": TEXT,
            "revision": Part(st.integers(0, 2)),
        },
    ),
    "schedules.delete": Method((SCHEDULE,)),
    "queues.list": Method(names={"limit": LIMIT, "cursor": CURSOR}),
    "jobs.disable": Method((JOB_ID,)),
    "jobs.enable": Method((JOB_ID,)),
    "enqueue": Method((TASK, PAYLOAD)),
    "enqueue_many": Method(
        (TASK, Part(st.lists(json_values(), max_size=3))), names={"kwargs": NAMED}
    ),
    "events.stream": Method(
        names={
            "queue": NAME,
            "task": TASK,
            "flow": FLOW,
            "types": Part(
                st.lists(st.sampled_from(["job.completed", "run.failed"]), max_size=2),
                st.lists(any_texts(), max_size=3) | any_texts(),
            ),
            "after": CURSOR,
        },
    ),
    "runs.explain": Method((RUN_ID,)),
    "jobs.attempts": Method((JOB_ID,)),
    "runs.fork": Method(
        (RUN_ID,),
        names={
            "after": Part(st.integers(1, 4) | NODE.likely, st.integers() | any_texts()),
            "patch": Part(st.dictionaries(st.sampled_from(["echo", "x"]), json_values())),
            "new_id": NAME,
            "by": WHO,
        },
    ),
    "flows.list": Method(names={"limit": LIMIT, "cursor": CURSOR}),
    "jobs.handle": Method((JOB_ID, TASK)),
    "store.health": Method(),
    "approvals.list": Method(
        (NAME,), names={"flow": FLOW, "run": RUN_ID, "limit": LIMIT, "cursor": CURSOR}
    ),
    "jobs.get": Method((JOB_ID,)),
    "jobs.list": Method(
        names={
            "status": STATUS,
            "queue": NAME,
            "task": TASK,
            "group": NAME,
            "limit": LIMIT,
            "cursor": CURSOR,
        },
    ),
    "runs.lineage": Method((RUN_ID,)),
    "runs.migrate": Method((RUN_ID,), {"to": FLOW}, {"by": WHO}),
    "store.now": Method(),
    "runs.pause": Method((RUN_ID,), names={"reason": TEXT, "by": WHO}),
    "queues.pause": Method((NAME,), names={"by": WHO}),
    "schedules.pause": Method((SCHEDULE,), names={"by": WHO}),
    "stats": Method(),
    "store.stats": Method(),
    "store.prune": Method(needed={"older_than": DURATION}, names={"status": STATUS}),
    "runs.report": Method(
        (one_of("run-outer"), one_of("outside")),
        names={
            "status": one_of("progress", "completed", "failed"),
            "result": PAYLOAD,
            "error": TEXT,
            "progress": PAYLOAD,
            "port": NAME,
            "key": NAME,
            "by": WHO,
        },
    ),
    "jobs.find_result": Method(
        (TASK, Part(st.lists(json_values(), max_size=2))),
        names={"default": PAYLOAD, "kwargs": NAMED},
    ),
    "jobs.enqueue": Method(
        (TASK, Part(st.lists(json_values(), max_size=2))),
        names={"kwargs": NAMED, "options": CALL_OPTIONS},
    ),
    "jobs.enqueue_many": Method(
        (TASK, Part(st.lists(json_values(), max_size=3))),
        names={"kwargs": NAMED, "options": CALL_OPTIONS},
    ),
    "jobs.explain": Method((JOB_ID,)),
    "runs.diagram": Method((RUN_ID,)),
    "runs.events": Method((RUN_ID,), names={"limit": LIMIT, "cursor": CURSOR}),
    "runs.submit": Method(
        (FLOW, PAYLOAD),
        names={
            "id": Part(names() | RUN_ID.likely, any_texts()),
            "on_conflict": one_of("fail", "use_existing", "replace"),
            "options": _options(RUN_OPTIONS),
        },
    ),
    "runs.timeline": Method((RUN_ID,)),
    "jobs.resume": Method((JOB_ID,), names={"data": PAYLOAD}),
    "queues.resume": Method((NAME,)),
    "queues.peek": Method((NAME,), names={"limit": LIMIT}),
    "schedules.resume": Method((SCHEDULE,)),
    "jobs.retry": Method((JOB_ID,)),
    "runs.retry": Method((RUN_ID,), names={"by": WHO}),
    "runs.get": Method((RUN_ID,)),
    "runs.handle": Method((RUN_ID, FLOW)),
    "runs.list": Method(names={"status": STATUS, "flow": FLOW, "limit": LIMIT, "cursor": CURSOR}),
    "schedules.save": Method(
        (Part(names(), any_texts()), one_of(work.chain, "chain", work.asking, work.echo, "echo")),
        {"cron": Part(st.sampled_from(["* * * * *", "0 3 * * *", "*/5 1-3 * * MON"]), any_crons())},
        {
            "every": DURATION,
            "timezone": Part(st.sampled_from(["UTC", "Europe/Berlin"]), any_timezones()),
            "input": PAYLOAD,
            "args": Part(st.lists(json_values(), max_size=2)),
            "kwargs": NAMED,
            "overlap": one_of("skip", "queue", "cancel"),
            "catch_up": one_of("one", "all", "none"),
            "start_at": MOMENT,
            "end_at": MOMENT,
            "paused": CHOICE,
        },
    ),
    "schedules.get": Method((SCHEDULE,)),
    "schedules.list": Method(names={"limit": LIMIT, "cursor": CURSOR}),
    "runs.signal": Method(
        (one_of("run-asking", "run-nesting/asking"), one_of("go"), PAYLOAD), names={"by": WHO}
    ),
    "flows.unserved": Method((Part(st.just(work.FLOWS), st.lists(FLOW.odd, max_size=2) | ODD),)),
    "submit": Method(
        (FLOW, PAYLOAD),
        names={
            "id": Part(names() | RUN_ID.likely, any_texts()),
            "on_conflict": one_of("fail", "use_existing", "replace"),
            **RUN_OPTIONS,
        },
    ),
    "schedules.trigger": Method((SCHEDULE,), names={"by": WHO}),
    "runs.resume": Method((RUN_ID,), names={"by": WHO}),
    "runs.set_priority": Method((RUN_ID, OPTIONS["priority"]), names={"by": WHO}),
    "waits.list": Method(
        names={
            "type": one_of("timer", "signal", "approval"),
            "run": RUN_ID,
            "name": NAME,
            "limit": LIMIT,
            "cursor": CURSOR,
        },
    ),
    "workers.list": Method(names={"limit": LIMIT, "cursor": CURSOR}),
    "task": Method((NAME,)),
    "using": Method((Part(st.none()),)),
}
LEFT_OUT = {
    "open": "takes nothing",
    "close": "takes nothing",
    "run": "waits for the end of a run, and takes what submit takes",
    "jobs.results": "waits for jobs, which its handles name",
    "jobs.watch": "runs until the job ends",
    "runs.watch": "streams until the run ends",
    "runs.observe": "streams until the run ends",
}


@st.composite
def calls(draw: st.DrawFn, name: str | None = None) -> Call:
    """A call of this method, or of any, with unexpected values in up to two places."""
    chosen = name or draw(st.sampled_from(sorted(METHODS)))
    method = METHODS[chosen]
    given: set[str] = set()
    if method.names:
        given = draw(st.sets(st.sampled_from(sorted(method.names)), max_size=3))
    parts: dict[int | str, Part] = dict(enumerate(method.positions))
    named = {**method.needed, **{each: method.names[each] for each in sorted(given)}}
    parts.update(named.items())
    odd: set[int | str] = set()
    if parts:
        odd = set(draw(st.lists(st.sampled_from(list(parts)), max_size=2)))
    drawn = {
        place: draw(part.odd if place in odd else part.likely) for place, part in parts.items()
    }
    args = tuple(drawn.pop(place) for place in range(len(method.positions)))
    return Call(chosen, args, {str(name): value for name, value in drawn.items()})


FLOWS = ("proof.fuzz.work:chain", "proof.fuzz.work:asking")
COMMANDS_LEFT_OUT = {
    "init": "writes a folder",
    "store export": "writes a file",
    "store import": "reads a file",
    "flows validate": "reads files, whose texts are a target of their own",
    "dev": "starts processes",
    "worker": "runs until it is stopped",
    "events stream": "runs until it is stopped",
    "run": "runs until the run ends",
    "runs watch": "runs until the run ends",
    "jobs watch": "runs until the job ends",
}
_COMMANDS = {name.replace(".", " ").replace("_", "-"): name for name in SUMMARIES} | ALIASES
COMMANDS: dict[str, tuple[str, ...]] = {
    words: tuple(
        max(each.opts, key=len)
        for each in command_named(name).params
        if isinstance(each, click.Option)
        and not each.is_flag
        and each.name not in ("store", "output")
    )
    for words, name in _COMMANDS.items()
    if words not in COMMANDS_LEFT_OUT
}
"""The options of each command that take a value."""
_POSITIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "runs signal": (("run-asking",), ("go",), ("1",)),
    "runs submit": (FLOWS, ("1",)),
    "runs report": (("run-outer",), ("outside",)),
    "runs broadcast": (("go",), ("1",)),
    "submit": (FLOWS, ("1",)),
    "signal": (("run-asking",), ("go",), ("1",)),
    "enqueue": (("proof.fuzz.work:echo",), ("1",)),
    "jobs enqueue": (("proof.fuzz.work:echo",), ("1",)),
    "explain": (RUNS,),
    "flows": (FLOWS,),
    "queues": (("default",),),
    "approvals": (("run-deciding:review",), ("approve", "reject")),
    "approvals get": (("run-deciding:review",),),
    "decide": (("run-deciding:review",), ("approve", "reject")),
    "jobs": (("waiting",),),
    "runs": (RUNS,),
    "schedules": (("nightly", "hourly"),),
    "schedules save": (("nightly",), FLOWS),
}
"""Likely arguments of a command, or of its group."""
_LIKELY = [*RUNS, "run-deciding:review", "nightly", "go", "outside", "approve", "1", "{}", "failed"]


def is_passable(text: str) -> bool:
    """Whether a shell can pass it: no NUL byte, no lone surrogates."""
    return "\x00" not in text and not any(0xD800 <= ord(each) < 0xE000 for each in text)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    values = st.sampled_from(_LIKELY) | odd_texts().filter(is_passable)
    options = draw(st.lists(st.sampled_from(COMMANDS[name] or ("--json",)), max_size=1))
    given = [part for option in options for part in _option(draw, option, values)]
    as_json = ["--json"] if draw(st.booleans()) and "--json" not in given else []
    likely = _POSITIONS.get(name, _POSITIONS.get(name.split()[0], ()))
    if name.endswith(("list", "count")):
        likely = ()
    positions = [draw(st.sampled_from(each)) for each in likely]
    if draw(st.booleans()):
        positions = draw(st.lists(values, max_size=3))
    return [*name.split(), *given, *as_json, "--", *positions]


def _option(draw: st.DrawFn, option: str, values: st.SearchStrategy[str]) -> list[str]:
    return [option] if option == "--json" else [f"{option}={draw(values)}"]
