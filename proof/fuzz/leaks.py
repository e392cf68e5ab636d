"""Tasks and flows that leak their worker's secret in every way we know."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    BuiltFlow,
    Flow,
    Grant,
    Permanent,
    Retry,
    Worker,
    failed,
    paused,
    skipped,
    task,
)
from perdure.store.contract import Store
from proof.fuzz.aftermath import until_quiet
from proof.fuzz.inspection import SECRET, check_secrets
from tests.worker.harness import Running

AGAIN = Retry(1, first="1ms")


class _Leaky:
    """Cannot be stored, and has the secret in its ``repr``."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return f"Told({self._secret!r})"


@task(retries=AGAIN)
async def tell(given: Any, ctx: AsyncContext = CONTEXT) -> Any:
    """``given`` is the way, and a value to put around the secret."""
    way, value = given
    secret = ctx.secret("key")
    around = f"{value}{secret}{value}"
    match way:
        case "result":
            return {"value": [value, {around: secret}], "url": quote(secret), "text": around}
        case "encoded":
            return [json.dumps({around: value}), base64.b64encode(secret.encode()).decode()]
        case "bytes":
            return {"raw": around.encode(errors="replace"), "basic": [f":{secret}".encode()]}
        case "unfit result":
            return {"value": value, "told": _Leaky(secret)}
        case "unfit key":
            return {_Leaky(around): value}
        case "error":
            raise ValueError(around, value)
        case "final error":
            raise Permanent(around)
        case "cause":
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise RuntimeError(around) from error
        case "note":
            noted = ValueError("see below")
            noted.add_note(around)
            raise noted
        case "type of error":
            raise type(f"{secret}Error", (Exception,), {})(value)
        case _:
            return await _leak_midway(way, value, ctx)


async def _leak_midway(way: str, value: Any, ctx: AsyncContext) -> Any:
    """Leaks from tasks that have not ended or never return."""
    secret = ctx.secret("key")
    around = f"{value}{secret}{value}"
    match way:
        case "progress":
            await ctx.progress(5, around, {"value": value, around: [secret]})
            raise ValueError("on the way")
        case "unfit progress":
            await ctx.progress(5, "", {"told": _Leaky(secret)})
        case "percent":
            await ctx.progress(secret)  # type: ignore[arg-type]  # as it may come
        case "step":
            return await ctx.step("once", lambda: {around: [value, secret]})
        case "failed step":
            return await ctx.step("once", lambda: dict[str, Any]()[around])
        case "unfit step":
            return await ctx.step("once", lambda: _Leaky(secret))
        case "name of a step":
            return await ctx.step(around, lambda: value)
        case "missing secret":
            return ctx.secret(around)
        case "pause":
            return paused({"value": value, around: secret})
        case "name of a pause":
            return paused(value, name=around)
        case "unfit pause":
            return paused(_Leaky(secret))
        case "skip":
            return skipped(around)
        case "failed":
            return failed(around)
    raise AssertionError(way)


WAYS = [
    "result", "encoded", "bytes", "unfit result", "unfit key", "error", "final error", "cause",
    "note", "type of error", "progress", "unfit progress", "percent", "step", "failed step",
    "unfit step", "name of a step", "missing secret", "pause", "name of a pause", "unfit pause",
    "skip", "failed",
]  # fmt: skip


@task
async def take(text: Any, other: Any = None) -> Any:
    return [text, other]


@task(retries=AGAIN)
async def count(number: int) -> int:
    return number


IN_A_WAY = ("told", "checked")
"""Flows whose input names a way; the others have a fixed one."""

_DECLARED = """
flow: {name}
nodes:
  - id: ask
    type: {type}
    inputs: {{given: input}}
    config: {config}
"""
_TYPES = {
    "script": """
      command: [sh, -c, 'cat; echo "$KEY"; echo "$KEY" >&2; exit 3']
      stdin: "{{ given }}"
      env: {KEY: "{{ secret.key }}"}""",
    "script that is not there": """
      command: ["no-such-{{ secret.key }}", "{{ given }}"]""",
    "http": """
      url: "http://127.0.0.1:1/{{ given }}"
      headers: {Authorization: "Bearer {{ secret.key }}"}""",
    "http without a host": """
      url: "{{ secret.key }}{{ given }}"
      method: "{{ secret.key }}" """,
}


def _declared(name: str) -> BuiltFlow:
    text = _DECLARED.format(name=f"'{name}'", type=name.split()[0], config=_TYPES[name])
    return Flow.from_yaml(text)


FLOWS: dict[str, BuiltFlow] = {
    "told": Flow("told").then(tell).build(),
    "checked": Flow("checked")
    .then(
        tell,
        check={
            "condition": {"property": "text", "op": "eq", "value": "x"},
            "advisory": True,
        },
    )
    .build(),
    "templates": Flow("templates")
    .then(
        take,
        inputs={"given": "input", "mine": "secret.key"},
        config={"text": "{{ given }}{{ secret.key }}{{ given }}", "other": ["{{ mine }}"]},
    )
    .build(),
    "unfit input": Flow("unfit input").then(count, inputs={"number": "secret.key"}).build(),
    "unfit template": Flow("unfit template")
    .then(count, config={"number": "{{ secret.key }}"})
    .build(),
    **{name: _declared(name) for name in _TYPES},
}


async def run_leaky_work(store: Store, client: AsyncClient, url: str) -> None:
    """Let a worker that knows the secret process all work; its own output does not leak it."""
    worker = Worker(
        store,
        tasks=[tell],
        flows=list(FLOWS.values()),
        secrets={"key": SECRET},
        grants=[Grant("key", tasks=["*"], hosts=["*"])],
        allow_scripts=True,
        poll="5ms",
        hold_off="0s",
    )
    running = await Running(worker).start()
    await until_quiet(client, running)
    await running.stop()
    check_secrets("what the worker published", running.events, url)
