"""Loaded flows that try to read secrets, and what two services and a task receive."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote_plus

from hypothesis import strategies as st

from perdure import AsyncClient, BuiltFlow, Flow, Grant, Task, Worker, task
from perdure.nodes.http import Http
from perdure.store.contract import Store
from proof.fuzz.aftermath import until_quiet
from proof.fuzz.inspection import SECRET, SECRET_MARK, check_secrets
from tests.nodes.contexts import Service, reply, serving
from tests.worker.harness import Running

OTHER = f"other-{SECRET_MARK}"
SECRETS = {"key": SECRET, "other": OTHER}
LOOPBACK = Http(allow=["127.0.0.1", "localhost"])

_SECRET = st.sampled_from(
    ["{{ secret.key }}", "{{ secret.key }}", "x{{ secret.other }}", "{{ token }}", "plain"]
)
_HOSTS = st.sampled_from(["<open>"] * 4 + ["<shut>", "<named>", "{{ host }}", "http://{{ token }}"])
_REQUESTS = st.fixed_dictionaries(
    {"url": st.builds("{}/{}".format, _HOSTS, st.sampled_from(["", "go", "raw"]) | _SECRET)},
    optional={
        "headers": st.dictionaries(st.sampled_from(["X-Key", "Cookie"]), _SECRET, max_size=2),
        "query": st.dictionaries(st.just("q"), _SECRET | st.lists(_SECRET, max_size=2)),
        "body": _SECRET | st.fixed_dictionaries({"a": st.lists(_SECRET, max_size=2)}),
        "method": st.sampled_from(["GET", "POST", "POST", "{{ token }}"]),
    },
)
_TOKENS = st.sampled_from(["secret.key", "secret.other", "input.text"])
_SETTINGS = st.fixed_dictionaries(
    {"text": _SECRET}, optional={"other": st.lists(_SECRET, max_size=2)}
)
_COMMANDS = st.fixed_dictionaries({"command": st.lists(_SECRET, min_size=1, max_size=2)})
_NODES = st.builds(
    lambda call, token: _node(call[0], call[1], token),
    st.tuples(st.just("http"), _REQUESTS)
    | st.tuples(st.just("http"), _REQUESTS)
    | st.tuples(st.just("script"), _COMMANDS)
    | st.tuples(st.just("take"), _SETTINGS),
    _TOKENS,
)


def _node(called: str, config: dict[str, Any], token: str) -> dict[str, Any]:
    """A node with the inputs that its templates name."""
    sources = {"host": "input.host", "token": token}
    used = {name: path for name, path in sources.items() if f"{{{{ {name} }}}}" in str(config)}
    key = "task" if called == "take" else "type"
    return {"id": "ask", key: called, "config": config} | ({"inputs": used} if used else {})


def _grants(secret: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Mostly wide ones, so that secrets are sent and one that is missing makes the difference."""
    flows = st.sampled_from([["*"], ["*"], ["parent", "child"], ["another"]])
    hosts = st.sampled_from([["<open>"], ["<open>", "localhost"], ["*"]])
    tasks = st.sampled_from([["take"], ["take", "http"], ["script"], ["*"]])
    common = {"secret": st.just(secret), "flows": flows}
    to_hosts = st.fixed_dictionaries({**common, "hosts": hosts})
    to_tasks = st.fixed_dictionaries({**common, "tasks": tasks})
    return st.tuples(to_hosts, to_tasks).map(list) | st.lists(to_hosts | to_tasks, max_size=2)


EXAMPLES = st.tuples(
    _NODES,
    _NODES,
    st.builds(lambda one, two: [*one, *two], _grants("key"), _grants("other")),
    st.sampled_from(["<open>", "<shut>"]),
)
"""A node of a child flow, one of its parent, the grants, and the host in the input."""

_taken: list[str] = []


@task
async def take(text: Any = None, other: Any = None, **inputs: Any) -> Any:
    _taken.append(repr([text, other, inputs]))
    return [text, other]


TASKS: list[Task[..., Any]] = [take]


@dataclass
class Services:
    """One that a grant may name, and one that it cannot; each redirects to the other."""

    origins: dict[str, str] = field(default_factory=dict)
    all: dict[str, Service] = field(default_factory=dict)

    def meant(self, value: Any) -> Any:
        """The value with the placeholders of origins filled in."""
        text = json.dumps(value)
        for name, origin in self.origins.items():
            text = text.replace(f"<{name}>", origin)
        return json.loads(text)


@contextmanager
def services() -> Iterator[Services]:
    with serving() as open, serving() as shut:
        found = Services(all={"open": open, "shut": shut})
        found.origins = {name: each.url("") for name, each in found.all.items()}
        found.origins["named"] = shut.url("", "localhost")
        for each, other in ((open, shut), (shut, open)):
            each.answer = _echo(each, other)
        yield found


def _echo(service: Service, other: Service) -> Any:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = service.asked[-1]
        echoed = {
            "path": asked.path,
            "headers": asked.headers,
            "body": asked.body.decode("latin-1"),
        }
        raw = b"\x00\xff" + json.dumps(echoed, ensure_ascii=False).encode()
        body: Any = raw if "raw" in asked.path else echoed
        status = 302 if "go" in asked.path else 200
        reply(handler, status, body, Location=other.url(handler.path))

    return answer


def load(nodes: Sequence[dict[str, Any]]) -> BuiltFlow:
    """A flow of the second node, and the first in a child flow."""
    child = Flow.from_dict(
        {"flow": "child", "nodes": [nodes[0]]}, tasks=TASKS, node_types=[LOOPBACK]
    )
    first = {"id": "first", "type": "flow", "config": {"flow": "child"}, "on_error": "continue"}
    parent = {"flow": "parent", "nodes": [first, nodes[1]]}
    return Flow.from_dict(parent, tasks=TASKS, node_types=[LOOPBACK], flows=[child])


async def execute(
    store: Store, client: AsyncClient, flow: BuiltFlow, grants: Sequence[Grant], input: Any
) -> str:
    """Run the flow until it ends or waits; its id."""
    worker = Worker(store, flows=[flow], secrets=SECRETS, grants=grants, poll="5ms", hold_off="0s")
    running = await Running(worker).start()
    try:
        run = await client.submit(flow, input)
        await until_quiet(client, running)
    finally:
        await running.stop()
    check_secrets("what the worker echoed", running.events)
    return run.id


def check_received(found: Services, grants: Sequence[Grant]) -> None:
    """Every secret that a service or a task received was granted to it, by some flow."""
    for name, service in found.all.items():
        for asked in service.asked:
            sent = f"{unquote_plus(asked.path)}{asked.headers}{asked.body.decode('latin-1')}"
            host = asked.header("host")
            for secret in _secrets_in(sent):
                assert any(
                    each.secret == secret and {"*", f"http://{host}"} & {*each.hosts}
                    for each in grants
                    if {"*", "parent", "child"} & {*each.flows}
                ), f"{secret} was sent to {name}: {asked}"
        service.asked.clear()
    for text in _taken:
        for secret in _secrets_in(text):
            assert any(
                each.secret == secret and {"*", "take"} & {*each.tasks}
                for each in grants
                if {"*", "parent", "child"} & {*each.flows}
            ), f"{secret} was passed to a task: {text}"
    _taken.clear()


def _secrets_in(text: str) -> Iterator[str]:
    others = text.count(OTHER)
    if others:
        yield "other"
    if text.count(SECRET_MARK) > others:
        yield "key"
