"""Every node type in a flow as YAML, executed by a worker; and its page."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import msgspec
import pytest

from perdure import AsyncClient, AsyncContext, Context, Flow, Grant, RunFailed
from perdure.clock import ManualClock
from perdure.flows.built import BuiltFlow
from perdure.model.run import RunStatus
from perdure.model.wait import Report, ReportStatus
from perdure.nodes.http import Http
from perdure.nodes.registry import NodeTypes
from perdure.store.opening import store_at
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import complete, paused, skipped
from tests.docs.pages import page
from tests.nodes.contexts import Service, reply, serving
from tests.support.refusal import failing, refused
from tests.worker.conftest import StartWorker, client, start_worker
from tests.worker.harness import until

__all__ = ["client", "start_worker"]
LOOPBACK = Http(allow=["127.0.0.1"])
ANYWHERE = (Grant("api_key", hosts=["*"]),)


@pytest.fixture
def store_url(memory_url: str) -> str:
    """Node types do not depend on the store."""
    return memory_url


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


@pytest.fixture
def at_work(client: AsyncClient, start_worker: StartWorker) -> Any:
    """Executes flows to their results."""

    async def result(flow: BuiltFlow, input: Any = None, **settings: Any) -> Any:
        await start_worker(flows=[flow], **settings)
        run = await client.submit(flow, input)
        return await run.result(20)

    return result


class TestADefinitionOfAgentSwarm:
    """As its authors print it, with ``type`` for ``executor``."""

    FLOW: ClassVar[dict[str, Any]] = {
        "flow": "deploy",
        "nodes": [
            {
                "id": "security-check",
                "type": "match",
                "inputs": {"isPublicApi": "input.isPublicApi"},
                "config": {"property": "isPublicApi", "operator": "equals", "value": True},
                "next": {"true": "security-review-required", "false": "skip-to-deployment"},
            },
            {
                "id": "security-review-required",
                "type": "note",
                "inputs": {"trigger.by": "input.by", "check.output": "security-check.output"},
                "config": {"text": "{{ trigger.by }}: {{check.output}}, review"},
            },
            {
                "id": "skip-to-deployment",
                "type": "note",
                "inputs": {"trigger.by": "input"},
                "config": {"text": "{{ trigger.by.by }}, deploy"},
            },
        ],
    }

    @pytest.mark.parametrize(
        "is_public, text", [(True, "lea: true, review"), (False, "lea, deploy")]
    )
    async def test_runs(self, at_work, is_public, text):
        flow = Flow.from_dict(self.FLOW)
        assert await at_work(flow, {"isPublicApi": is_public, "by": "lea"}) == text
        assert Flow.from_yaml(flow.to_yaml()).graph.version == flow.graph.version

    async def test_checks_all_inputs_at_once(self, at_work):
        flow = Flow.from_dict(
            {
                "flow": "checking",
                "nodes": [
                    {
                        "id": "check",
                        "type": "check",
                        "inputs": {"coder.output": "input.code", "coder.by": "input.by"},
                        "config": {"schema": {"required": ["coder"]}},
                    }
                ],
            }
        )
        assert (await at_work(flow, {"code": "x", "by": "lea"}))["passed"] is True

    def test_names_in_templates_are_checked(self):
        other = json.loads(json.dumps(self.FLOW).replace("{{check.output}}", "{{check.result}}"))
        with refused("template.undeclared_input"):
            Flow.from_dict(other)


class TestHttp:
    FLOW = """
      flow: ask
      nodes:
        - id: ask
          type: http
          inputs: {port: input.port, order: input.order}
          config:
            method: POST
            url: "http://127.0.0.1:{{ port }}/orders/{{ order.id }}"
            headers: {Authorization: "Bearer {{ secret.api_key }}"}
            body: {lines: "{{ order.lines }}"}
            status: {404: missing}
          next: {default: told, missing: none}
        - {id: told, type: note, inputs: {answer: ask.output.body.answer}, config: {text: "{{ answer }}"}}
        - {id: none, type: note, config: {text: none}}
    """  # noqa: E501

    async def test_asks_with_what_the_flow_has(self, at_work, service):
        service.answer = lambda handler: reply(handler, body={"answer": [1]})
        flow = Flow.from_yaml(self.FLOW, node_types=[LOOPBACK])
        order = {"id": "a/b{{x}}", "lines": [{"sku": "{{ secret.api_key }}"}]}

        found = await at_work(
            flow,
            {"port": service.port, "order": order},
            secrets={"api_key": "open sesame"},
            grants=ANYWHERE,
        )

        assert found == "[1]"
        [asked] = service.asked
        assert asked.path == "/orders/a/b%7B%7Bx%7D%7D"
        assert asked.header("authorization") == "Bearer open sesame"
        assert asked.body == b'{"lines":[{"sku":"{{ secret.api_key }}"}]}'
        assert (asked.header("idempotency-key") or "").endswith(":ask:0")

    async def test_no_error_contains_a_secret(self, at_work, service):
        def echo(handler: Any) -> None:
            reply(handler, 403, f"{'x ' * 92}{handler.headers['Authorization']}".encode())

        service.answer = echo
        flow = Flow.from_yaml(self.FLOW, node_types=[LOOPBACK])
        given = {"port": service.port, "order": {"id": 1, "lines": []}}

        with failing("http.request_failed", RunFailed) as caught:
            await at_work(flow, given, secrets={"api_key": "opensesame"}, grants=ANYWHERE)

        assert "opense" not in str(caught.value)

    async def test_retries_what_passes(self, at_work, service):
        service.answer = lambda handler: reply(handler, 200 if len(service.asked) > 2 else 500)
        text = f"""
          flow: stubborn
          nodes:
            - id: ask
              type: http
              config: {{url: "{service.url()}", method: POST}}
              retry: {{retries: 3, first: 0}}
        """
        flow = Flow.from_yaml(text, node_types=[LOOPBACK])

        assert (await at_work(flow, hold_off="0s"))["status"] == 200
        assert len(service.asked) == 3
        assert len({asked.header("idempotency-key") for asked in service.asked}) == 1


class TestScript:
    FLOW = """
      flow: count
      nodes:
        - id: words
          type: script
          inputs: {text: input}
          config:
            command: [sh, -c, 'cat; echo " $KEY" >&2; exit 2']
            stdin: {text: "{{ text }}"}
            env: {KEY: "{{ secret.key }}"}
            exit: {2: odd}
          next: {default: null, odd: told}
        - id: told
          type: note
          inputs: {json: words.output.json, errors: words.output.stderr}
          config: {text: "{{ json.text }}{{ errors }}"}
    """
    GRANTS = (Grant("key", tasks=["script"]),)

    async def test_is_executed_where_that_is_allowed(self, at_work):
        found = await at_work(
            Flow.from_yaml(self.FLOW),
            "$(id)",
            allow_scripts=True,
            secrets={"key": "sesame!"},
            grants=self.GRANTS,
        )

        assert found == "$(id) ***\n"

    async def test_is_refused_elsewhere(self, at_work):
        secrets = {"key": "sesame!"}
        with failing("script.not_allowed", RunFailed):
            await at_work(Flow.from_yaml(self.FLOW), "x", secrets=secrets, grants=self.GRANTS)

    async def test_that_fails_is_masked_before_its_stderr_is_truncated(self, at_work):
        """Finding 10: the end of it in the error began within a secret of several words."""
        flow = Flow.from_yaml(self.FLOW.replace("exit: {2: odd}", "").replace(
            "next: {default: null, odd: told}", "next: told"
        ).replace('echo " $KEY" >&2', 'printf "%s%0990d" "$KEY" 0 >&2'))  # fmt: skip
        settings = {"secrets": {"key": "open sesame quickly"}, "grants": self.GRANTS}
        with pytest.raises(RunFailed) as caught:
            await at_work(flow, "x", allow_scripts=True, **settings)
        assert "0000" in str(caught.value)
        assert "quickly" not in str(caught.value)

    async def test_ends_with_its_run(self, client, start_worker):
        text = """
          flow: long
          nodes: [{id: sleep, type: script, config: {command: [sleep, 60]}}]
        """
        flow = Flow.from_yaml(text)
        worker = await start_worker(flows=[flow], allow_scripts=True)
        run = await client.submit(flow)
        await until(lambda: started(client))

        await client.runs.cancel(run.id)
        await worker.stop(grace=10)

        assert (await client.runs.get(run.id)).status is RunStatus.CANCELLED


class Haggle(NodeType):
    """Asks an outside party, twice if need be."""

    name = "haggle"
    ports = ("dear",)
    poll_every = timedelta(minutes=3)

    class Config(NodeConfig):
        offer: int

    async def execute(self, config: Config, ctx: AsyncContext) -> Any:
        if config.offer == 0:
            return skipped("nothing to offer")
        return paused({"offer": config.offer})

    def resume(self, checkpoint: Any, report: Report, ctx: Context) -> Any:
        if report.result == "more":
            return paused({"offer": checkpoint["offer"] + 1})
        return complete(checkpoint["offer"], "dear" if checkpoint["offer"] > 10 else "")

    def poll(self, checkpoint: Any, ctx: Context) -> Report | None:
        return Report(status=ReportStatus.COMPLETED, result="fine")


class TestAKindOfYours:
    FLOW = """
      flow: buy
      nodes:
        - id: haggle
          type: haggle
          inputs: {offer: input}
          config: {offer: "{{ offer }}"}
          next: {default: bought, dear: refused}
        - {id: bought, type: note, inputs: {price: haggle.output}, config: {text: "for {{ price }}"}}
        - {id: refused, type: note, inputs: {price: haggle.output}, config: {text: "not {{ price }}"}}
    """  # noqa: E501

    async def test_pauses_as_often_as_it_likes(self, client, start_worker):
        flow = Flow.from_yaml(self.FLOW, node_types=[Haggle])
        await start_worker(flows=[flow])
        run = await client.submit(flow, 10)
        await until(lambda: offers(client, run.id), [10])
        await client.runs.report(run.id, "haggle", status="completed", result="more")
        await until(lambda: offers(client, run.id), [11])
        await client.runs.report(run.id, "haggle", status="completed", result="fine")

        assert await run.result(20) == "not 11"

    async def test_is_polled_until_there_is_a_report(self, memory_url, start_worker):
        clock = ManualClock()
        flow = Flow.from_yaml(self.FLOW, node_types=[Haggle])
        await start_worker(flows=[flow], store=store_at(memory_url, clock=clock), poll="20ms")
        async with AsyncClient(store_at(memory_url, clock=clock)) as client:
            run = await client.submit(flow, 4)
            await until(lambda: offers(client, run.id), [4])
            clock.advance(Haggle.poll_every)

            assert await run.result(20) == "for 4"

    async def test_may_skip_its_node(self, at_work):
        assert await at_work(Flow.from_yaml(self.FLOW, node_types=[Haggle]), 0) is None


async def offers(client: AsyncClient, run: str) -> list[Any]:
    """What the run has asked somebody outside."""
    waits = await client.waits.list(run=run, type="external")
    return [wait.detail["offer"] for wait in waits]


async def started(client: AsyncClient) -> bool:
    return bool(await client.jobs.list(status="active"))


PAGE = page("docs/howto/node-types.md")
KINDS = NodeTypes()
REQUIRED = object()


def defaults_of(node_type: NodeType) -> dict[str, Any]:
    return {
        field.encode_name: REQUIRED if field.required else default_of(field)
        for field in msgspec.structs.fields(node_type.Config)
    }


def default_of(field: Any) -> Any:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def default_in(cell: str) -> Any:
    """The default as the page writes it."""
    words: dict[str, Any] = {
        "required": REQUIRED,
        "null": None,
        "none": {},
        "`false`": False,
        "`[]`": [],
        "the inputs": msgspec.UNSET,
        "not set": msgspec.UNSET,
    }
    if cell in words:
        return words[cell]
    text = cell.strip("`")
    return int(text) if text.isdecimal() else text


class TestPage:
    """The page about kinds names every setting with its default, and every port."""

    @pytest.mark.parametrize("name", KINDS)
    def test_every_setting_is_there_with_its_default(self, name):
        rows = PAGE.table_under(name)
        found = {setting.strip("`"): default_in(default) for setting, default, _ in rows}
        assert found == defaults_of(KINDS[name])

    @pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].ports])
    def test_every_port_is_there(self, name):
        [_, after] = PAGE.text.split(f"\n### {name}\n")
        section = after.partition("\n### ")[0]
        [documented] = re.findall(r"Ports: ([^.]*)\.", section)
        assert tuple(port.strip("`") for port in documented.split(", ")) == KINDS[name].ports

    def test_every_member_of_a_type_is_there(self):
        rows = PAGE.table_under("Node type members")

        documented = {cell.strip("`").partition("(")[0] for cell, _ in rows}
        public = {
            name
            for name in {*vars(NodeType), *NodeType.__annotations__}
            if not name.startswith("_")
        }
        assert documented == public - {"has_poll", "has_cancel"}  # which follow


class TestSecretsInResponses:
    """What a service returns of a secret is masked before a node type encodes or truncates it."""

    VALUE = "t0ken|with:some/ümläuts-7731940286"

    @pytest.mark.parametrize("padding", [b"", b"1", b"22"])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
    async def test_are_masked_before_they_are_encoded(self, at_work, service, padding, encoding):
        """Finding 10: base64 of a binary response contained the secret that it echoed."""
        echo = b"\x00\xff" + padding + self.VALUE.encode(encoding) + b"\x00\x00"
        service.answer = lambda handler: reply(handler, 200, echo, "image/png")
        output = await at_work(self._flow(service), secrets={"key": self.VALUE})
        assert output["encoding"] == "base64"
        assert b64decode(output["body"]) == b"\x00\xff" + padding + b"***" + b"\x00\x00"

    async def test_are_masked_before_they_are_truncated(self, at_work, service):
        """Finding 10: the beginning of a response in an error ended within the secret."""
        echo = b"x" * 180 + b" " + self.VALUE.encode()
        service.answer = lambda handler: reply(handler, 400, echo)
        with pytest.raises(RunFailed) as caught:
            await at_work(self._flow(service), secrets={"key": self.VALUE})
        assert self.VALUE[:8] not in str(caught.value)

    async def test_are_masked_as_the_node_writes_them_in_urls_and_headers(self, at_work, service):
        """Finding 10: the path of a URL and a header in another charset were not recognized."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            mojibake = self.VALUE.encode().decode("latin-1")
            reply(handler, 200, handler.path.encode(), X_Key=mojibake)

        service.answer = answer
        output = await at_work(self._flow(service), secrets={"key": self.VALUE})

        assert output["body"] == "/of/***"
        assert output["headers"]["x-key"] == "***"

    @staticmethod
    def _flow(service: Service) -> BuiltFlow:
        config = {"url": service.url("/of/{{ secret.key }}")}
        return Flow("echo").use(LOOPBACK, config=config, name="call").build()
