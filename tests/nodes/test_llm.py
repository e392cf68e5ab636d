"""The ``llm`` node type against a service on loopback that speaks the chat completions protocol."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from perdure import Flow, Grant, RunFailed, run_flow
from perdure.errors import InvalidInput, Permanent, RetryLater
from perdure.flows.built import BuiltFlow
from perdure.nodes.call import node_type_task
from perdure.nodes.config import config_faults
from perdure.nodes.http import HttpFailed
from perdure.nodes.llm import Llm, LlmFailed
from tests.nodes.contexts import Service, context, reply, serving
from tests.support.refusal import refused
from tests.worker.conftest import client, start_worker

__all__ = ["client", "start_worker"]

LOOPBACK = Llm(allow=["127.0.0.1"])
KEY = "sk-open-sesame-1234"
PRICE = {
    "type": "object",
    "properties": {"price": {"type": "number", "minimum": 0}, "lines": {"type": "array"}},
    "required": ["price"],
    "additionalProperties": False,
}


class Model:
    """Checks requests as such services do; ``say`` makes the message, or is it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.say: str | dict[str, Any] | Callable[[dict[str, Any]], str] | None = "Hello."
        self.finish: str | None = "stop"
        self.requests: list[dict[str, Any]] = []
        service.answer = self.respond

    @property
    def url(self) -> str:
        return self.service.url("/v1")

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        asked = self.service.asked[-1]
        if asked.header("authorization") != f"Bearer {KEY}":
            return self.fail(handler, 401, "invalid_api_key", f"Incorrect API key: {KEY[:7]}***")
        if (asked.method, asked.path) != ("POST", "/v1/chat/completions"):
            return self.fail(handler, 404, "unknown_url", f"Unknown: {asked.path}")
        body = json.loads(asked.body)
        self.requests.append(body)
        if body["model"] != "small":
            return self.fail(handler, 404, "model_not_found", f"no model {body['model']}")
        assert [each["role"] for each in body["messages"]] in (["user"], ["system", "user"])
        said = self.say(body) if callable(self.say) else self.say
        message = {"role": "assistant", **(said if isinstance(said, dict) else {"content": said})}
        words = len(json.dumps(body["messages"]).split())
        completion = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "small-2026-01-01",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
            "usage": {
                "prompt_tokens": words,
                "completion_tokens": 5,
                "total_tokens": words + 5,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        }
        return reply(handler, 200, completion)

    def fail(self, handler: BaseHTTPRequestHandler, status: int, code: str, text: str) -> None:
        error = {"message": text, "type": "invalid_request_error", "code": code, "param": None}
        reply(handler, status, {"error": error})


@pytest.fixture
def model() -> Iterator[Model]:
    with serving() as service:
        yield Model(service)


def ask(model: Model, /, **config: Any) -> Any:
    given = {"url": model.url, "model": "small", "prompt": "Hi!", "api_key": KEY, **config}
    return node_type_task(LOOPBACK, "flow.node")(given, context())


class TestTheRequest:
    def test_has_the_prompt_and_the_settings(self, model):
        result = ask(
            model, system="Be brief.", temperature=0.5, max_tokens=9, extra={"seed": 3, "top_p": 1}
        )

        assert model.requests == [
            {
                "model": "small",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi!"},
                ],
                "temperature": 0.5,
                "max_tokens": 9,
                "seed": 3,
                "top_p": 1,
            }
        ]
        assert result.port == ""
        assert result.output == {
            "text": "Hello.",
            "json": None,
            "finish_reason": "stop",
            "model": "small-2026-01-01",
            "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
        }
        [asked] = model.service.asked
        assert asked.header("content-type") == "application/json"
        assert asked.header("idempotency-key") == "order-3:ask:0"

    def test_says_nothing_that_is_not_set_and_sends_values_as_json(self, model):
        ask(model, prompt={"order": [1, 2]})
        [asked] = model.requests
        assert asked == {
            "model": "small",
            "messages": [{"role": "user", "content": '{"order":[1,2]}'}],
        }

    @pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/chat/completions"])
    def test_goes_to_the_base_url_or_the_endpoint(self, model, path):
        assert ask(model, url=model.service.url(path)).output["text"] == "Hello."

    def test_keeps_the_query_of_the_url_and_a_header_of_the_flow(self, model):
        with refused("http.request_failed", Permanent, status=404):  # it does not know the query
            ask(
                model,
                url=model.url + "?api-version=2",
                api_key="unused",
                headers={"authorization": f"Bearer {KEY}"},
            )
        [asked] = model.service.asked
        assert asked.path == "/v1/chat/completions?api-version=2"

    @pytest.mark.parametrize(
        "changed, where",
        [
            ({"url": "ftp://x"}, ("url",)),
            ({"url": "https://me:pw@x/"}, ("url",)),
            ({"model": ""}, ("model",)),
            ({"temperature": 3}, ("temperature",)),
            ({"max_tokens": 0}, ("max_tokens",)),
            ({"timeout": "0s"}, ("timeout",)),
            ({"schema": {"type": "nothing"}}, ("schema", "type")),
            ({"schema": {"$ref": "http://x/"}}, ("schema",)),
            ({"extra": {"stream": True}}, ("extra", "stream")),
            ({"extra": {"tools": []}}, ("extra", "tools")),
            ({"headers": {"Host": "x"}}, ("headers", "Host")),
            ({"finish": {"stop": "x"}}, ("finish", "stop")),
            ({"finish": {"length": "{{ x }}"}}, ("finish", "length")),
            ({"promt": "x"}, ("promt",)),
        ],
    )
    def test_faults_are_found_before_and_after_templates_are_filled_in(self, model, changed, where):
        config = {"url": model.url, "model": "small", "prompt": "Hi!", "api_key": KEY, **changed}

        assert [fault.where for fault in config_faults(LOOPBACK, config)] == [where]
        if changed.keys() - {"finish"}:  # ports are known before
            with pytest.raises(Permanent):
                ask(model, **changed)
        assert model.service.asked == []

    def test_refuses_addresses_as_http_does(self, model):
        with refused("http.not_public", Permanent):
            config = {"url": model.url, "model": "small", "prompt": "Hi!"}
            node_type_task(Llm(), "flow.node")(config, context())
        with refused("http.not_allowable", InvalidInput):
            Llm(allow=["http://x/"])


class TestAnswersInJson:
    def test_send_the_schema_and_return_the_value(self, model):
        model.say = lambda body: json.dumps({"price": len(body["messages"])})

        result = ask(model, schema=PRICE, strict=True)

        assert result.output["json"] == {"price": 1}
        assert model.requests[0]["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": PRICE},
        }

    @pytest.mark.parametrize(
        "said",
        [
            '```json\n{"price": 2}\n```\n',
            '\n ```JSON \r\n{"price": 2}```',
            '```\n\n{"price": 2}\n\n```',
        ],
    )
    def test_may_be_fenced(self, model, said):
        model.say = said
        assert ask(model, schema=PRICE).output["json"] == {"price": 2}

    @pytest.mark.parametrize("said", ["```" + "\n" * 100_000 + "x", "```\n" * 100_000 + "`"])
    def test_are_read_in_linear_time(self, model, said):
        """Finding 4: a pattern backtracked for hours over one answer, and held the interpreter."""
        model.say = said
        started = time.monotonic()
        with refused("llm.invalid_answer", LlmFailed, faults="it is not JSON"):
            ask(model, schema=PRICE)
        assert time.monotonic() - started < 10

    def test_another_response_format_may_be_asked_for(self, model):
        model.say = '{"price": 2}'
        ask(model, schema=PRICE, extra={"response_format": {"type": "json_object"}})
        assert model.requests[0]["response_format"] == {"type": "json_object"}

    @pytest.mark.parametrize(
        "said, faults",
        [
            ("I would say 3.", "it is not JSON"),
            ("", "it is not JSON"),
            ("[" * 100_000, "it is not JSON"),
            ("{}", "form.required at price"),
            ('{"price": -1}', "form.minimum at price"),
            ('{"price": 1, "hush": 1}', "form.unknown_field at *"),
            ("3", "form.type at the top"),
        ],
    )
    def test_that_do_not_fit_are_retried_and_not_reported(self, model, said, faults):
        model.say = said
        with refused("llm.invalid_answer", LlmFailed, faults=faults, tokens=9) as caught:
            ask(model, schema=PRICE)
        assert "hush" not in str(caught.value)
        assert not isinstance(caught.value, Permanent)

    def test_of_any_schema_are_only_json(self, model):
        model.say = '{"a": [1]}'
        assert ask(model, schema=True).output["json"] == {"a": [1]}


class TestNoAnswer:
    @pytest.mark.parametrize(
        "said, finish, reason, code, text",
        [
            (
                {"content": None, "refusal": "I won't."},
                "stop",
                "refusal",
                "llm.refused",
                "I won't.",
            ),
            (None, "content_filter", "content_filter", "llm.refused", ""),
            ("Once upon", "length", "length", "llm.truncated", "Once upon"),
        ],
    )
    def test_fails_for_good_unless_the_reason_has_a_port(
        self, model, said, finish, reason, code, text
    ):
        model.say, model.finish = said, finish

        with refused(code, Permanent) as caught:
            ask(model, schema=PRICE)
        result = ask(model, schema=PRICE, finish={reason: "odd"})

        assert "won't" not in str(caught.value)
        assert (result.port, result.output["finish_reason"]) == ("odd", reason)
        assert (result.output["text"], result.output["json"]) == (text, None)

    def test_a_call_of_a_tool_fails_for_good(self, model):
        model.say, model.finish = {"content": None, "tool_calls": []}, "tool_calls"
        with refused("llm.tool_calls", Permanent):
            ask(model)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>",
            b'{"choices": [',
            b"[" * 100_000,
            {},
            {"choices": []},
            {"choices": [{"message": {"content": 5}}]},
            {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]},
        ],
    )
    def test_a_response_that_is_no_completion_is_retried(self, model, body):
        model.service.answer = lambda handler: reply(handler, 200, body)
        with refused("llm.invalid_response", LlmFailed) as caught:
            ask(model)
        assert not isinstance(caught.value, Permanent)

    def test_a_response_with_too_many_values_is_none(self, model):
        """Finding 8: it would take thirty times as much memory as its JSON."""
        body = b'{"choices":[{"message":{"content":"x"}}],"more":[' + b"{}," * 1_000_001 + b"{}]}"
        model.service.answer = lambda handler: reply(handler, 200, body)
        with refused("llm.invalid_response", LlmFailed):
            ask(model, max_bytes=len(body))

    @pytest.mark.parametrize("usage", [None, [], {"total_tokens": "many"}, {"total_tokens": -1}])
    def test_usage_that_cannot_be_read_costs_no_answer(self, model, usage):
        choice = {"message": {"content": "Hello."}}
        model.service.answer = lambda handler: reply(
            handler, 200, {"choices": [choice], "usage": usage}
        )
        output = ask(model).output
        assert (output["text"], output["usage"]["total_tokens"]) == ("Hello.", None)


class TestErrors:
    @pytest.mark.parametrize(
        "changed, status, beginning",
        [
            ({"model": "large"}, 404, "invalid_request_error, model_not_found"),
            ({"api_key": "another"}, 401, "invalid_request_error, invalid_api_key"),
        ],
    )
    def test_contain_codes_but_no_message_of_the_service(self, model, changed, status, beginning):
        with refused(
            "http.request_failed", Permanent, status=status, beginning=beginning
        ) as caught:
            ask(model, **changed)
        assert KEY[:7] not in str(caught.value)

    def test_that_pass_are_retried_as_those_of_http(self, model):
        model.service.answer = lambda handler: model.fail(handler, 500, "busy", "Hi!")
        with pytest.raises(HttpFailed):
            ask(model)
        model.service.answer = lambda handler: reply(handler, 429, Retry_After="7")
        with pytest.raises(RetryLater) as caught:
            ask(model)
        assert caught.value.after == timedelta(seconds=7)

    def test_a_slow_model_is_given_up(self, model):
        model.service.answer = lambda handler: handler.rfile.read(1) and None
        with pytest.raises(TimeoutError):
            ask(model, timeout="100ms")


class TestInAFlow:
    FLOW = """
      flow: quote
      nodes:
        - id: ask
          type: llm
          inputs: {order: input}
          config:
            url: "http://127.0.0.1:{{ order.port }}/v1"
            api_key: "{{ secret.KEY }}"
            model: small
            system: "You sell {{ order.what }}."
            prompt: "What do {{ order.count }} cost?"
            schema:
              type: object
              properties: {price: {type: number}}
              required: [price]
            finish: {refusal: refused}
          retry: {retries: 3, first: 0}
          next: {default: told, refused: sorry}
        - id: told
          type: note
          inputs: {price: ask.output.json.price, spent: ask.output.usage.total_tokens}
          config: {text: "{{ price }} for {{ spent }} tokens"}
        - {id: sorry, type: note, config: {text: sorry}}
    """

    def prepared(self, model: Model, *hosts: str) -> tuple[BuiltFlow, Any, dict[str, Any]]:
        """The flow, its input, and the settings of its worker."""
        flow = Flow.from_yaml(self.FLOW, node_types=[LOOPBACK])
        given = {"port": model.service.port, "what": "private pears", "count": 3}
        granted = hosts or (f"http://127.0.0.1:{model.service.port}",)
        return flow, given, {"secrets": {"KEY": KEY}, "grants": [Grant("KEY", hosts=granted)]}

    def run(self, model: Model, *hosts: str) -> Any:
        flow, given, settings = self.prepared(model, *hosts)
        return run_flow(flow, given, **settings)

    def failure(self, model: Model, *hosts: str) -> Any:
        with pytest.raises(RunFailed) as caught:
            self.run(model, *hosts)
        return caught.value.failure

    def test_asks_again_until_the_answer_fits(self, model):
        model.say = lambda body: '{"price": 12}' if len(model.requests) > 2 else "dunno"
        assert self.run(model) == "12 for 19 tokens"
        assert len(model.requests) == 3
        assert [each["content"] for each in model.requests[0]["messages"]] == [
            "You sell private pears.",
            "What do 3 cost?",
        ]

    async def test_waits_on_a_worker_for_as_long_as_the_service_asks(
        self, model, client, start_worker
    ):
        model.say = '{"price": 12}'
        starts: list[float] = []

        def answer(handler: BaseHTTPRequestHandler) -> None:
            starts.append(time.monotonic())
            if len(starts) > 1:
                model.respond(handler)
            else:
                reply(handler, 429, Retry_After="1")

        model.service.answer = answer
        flow, given, settings = self.prepared(model)
        await start_worker(flows=[flow], **settings)
        run = await client.submit(flow, given, id="quote-1")

        assert await run.result(20) == "12 for 19 tokens"
        usage = {"prompt_tokens": 14, "completion_tokens": 5, "total_tokens": 19}
        assert (await run.outputs())["ask"]["usage"] == usage
        assert len(starts) == 2
        assert starts[1] - starts[0] >= 1
        keys = {asked.header("idempotency-key") for asked in model.service.asked}
        assert keys == {"quote-1:ask:0"}
        [request] = model.requests  # the service has checked its key
        assert request["messages"][1] == {"role": "user", "content": "What do 3 cost?"}
        log = await run.events()
        [retried] = [each for each in log if each.type == "node_retried"]
        assert (retried.details["is_snoozed"], retried.failure.code) == (True, "task.retry_later")
        assert KEY not in str(log)

    def test_may_choose_a_port(self, model):
        model.say = {"content": None, "refusal": "No."}
        assert self.run(model) == "sorry"

    def test_sends_a_secret_only_where_it_is_granted(self, model):
        assert self.failure(model, "api.example.com").code == "task.secret_not_granted"
        assert model.service.asked == []

    @pytest.mark.parametrize("status", [400, 500])
    def test_no_failure_contains_the_prompt_the_answer_or_the_key(self, model, status):
        def echo(handler: BaseHTTPRequestHandler) -> None:
            asked = model.service.asked[-1]
            text = f"{asked.header('authorization')} {asked.body.decode()} {KEY[:12]}"
            model.fail(handler, status, "private pears", text)

        model.service.answer = echo
        failure = self.failure(model)
        stored = f"{failure.message} {failure.traceback} {failure.causes}"
        assert failure.code == "http.request_failed"
        assert not re.search("pears|What do|sesame", stored)

    def test_no_failure_contains_an_answer(self, model):
        model.say = '{"price": "private pears", "sesame": 1}'
        failure = self.failure(model)
        assert failure.code == "llm.invalid_answer"
        assert not re.search("pears|sesame", f"{failure.message} {failure.traceback}")

    def test_is_the_same_once_written_and_read_again(self):
        read = Flow.from_yaml(self.FLOW)
        assert Flow.from_yaml(read.to_yaml()).graph.version == read.graph.version
        built = Flow("quote").use(LOOPBACK, {"url": "https://x", "model": "m", "prompt": "p"})
        assert Flow.from_yaml(built.build().to_yaml()).graph.version == built.build().graph.version
