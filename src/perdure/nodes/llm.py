"""The ``llm`` node type: ask a model through an OpenAI-compatible chat completions API.

Prompts, answers and messages of the service are never quoted in errors: they may contain data that
the flow keeps out of its history, and some services repeat a part of the API key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from perdure.diagnostics import Fault, declare, near
from perdure.errors import InvalidInput, PerdureError, Permanent
from perdure.expr.path import path_text
from perdure.forms.schema import check_schema, faults_of
from perdure.model.payload import to_json
from perdure.nodes.config import Span, foreign_json, has_template, named_ports, port_faults, port_of
from perdure.nodes.http import (
    BODY_DEFAULT_BYTES,
    BODY_MAX_BYTES,
    HeaderValue,
    HttpNodeType,
    HttpRequest,
    HttpResponse,
    destination,
    failure_of,
    request_headers,
)
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig
from perdure.tasks.result import Complete, complete

LENGTH, FILTERED, REFUSAL = "length", "content_filter", "refusal"
FINISH = (LENGTH, FILTERED, REFUSAL)
"""Reasons for which an answer is not what was asked for; each may have a port."""

_PATH = "/chat/completions"
# Fields that other settings give, and those whose responses this node type does not read.
_RESERVED = frozenset(
    [
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
    ]
)
_CALLS = ("tool_calls", "function_call")
_USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
_FENCE = "```"
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FAULTS_MAX = 5
"""Faults of an answer in an error message."""

RESERVED_FIELD = declare(
    "llm.reserved_field", "{field!r} cannot be set here: this node type determines it"
)
UNKNOWN_FINISH = declare(
    "llm.unknown_finish",
    "{reason!r} is not a finish reason with a port[; did you mean {nearest:or}?]; known: {known}",
)
INVALID_RESPONSE = declare(
    "llm.invalid_response", "the response of {url} is not a chat completion: {reason}"
)
INVALID_ANSWER = declare(
    "llm.invalid_answer",
    "the answer of the model does not fit the schema: {faults}[; {tokens} tokens were used]",
    "Retries call the model again; describe the format of the answer in the prompt",
)
REFUSED = declare(
    "llm.refused",
    "the model did not answer: {reason}",
    "Map this reason to a port with 'finish' to continue anyway",
)
TRUNCATED = declare(
    "llm.truncated",
    "the answer of the model was truncated[ after {tokens} tokens]",
    "Increase max_tokens, or map 'length' to a port with 'finish'",
)
TOOL_CALLS = declare(
    "llm.tool_calls", "the model called a tool instead of answering, but has no tools"
)


class LlmFailed(PerdureError):
    """The answer of a model cannot be used. The node's retries apply."""


class Llm(HttpNodeType):
    """Asks a model with a prompt; its answer is the output, as text or as JSON of a schema.

    Only public addresses are reachable, unless others are allowed here or in the worker's
    environment.
    """

    name = "llm"

    class Config(NodeConfig):
        url: str
        """The base URL of the API, such as ``https://api.openai.com/v1``."""
        model: Annotated[str, Meta(min_length=1)]
        prompt: Any
        """Values other than strings are sent as JSON."""
        system: str | None = None
        api_key: str | None = None
        """Sent as a bearer token."""
        temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
        max_tokens: Annotated[int, Meta(ge=1)] | None = None
        schema: dict[str, Any] | bool | None = None
        """JSON Schema of the answer. The model gets it; an answer that does not match fails."""
        strict: bool = False
        """Whether the service has to enforce the schema, which limits what it may contain."""
        extra: dict[str, Any] = field(default_factory=dict)
        """Further fields of the request, such as ``top_p`` or ``seed``."""
        headers: dict[str, str | int | float | bool | None] = field(default_factory=dict)
        timeout: Span = "2m"
        """For the whole exchange, until the answer is complete."""
        finish: dict[str, str] = field(default_factory=dict)
        """The port to continue on if there is no full answer, by reason."""
        max_bytes: Annotated[int, Meta(ge=1, le=BODY_MAX_BYTES)] = BODY_DEFAULT_BYTES
        """A longer response fails the node."""

    def execute(self, config: Config, ctx: Context) -> Complete:
        if (broken := list(_schema_faults(config.schema))) or (
            broken := list(_extra_faults(config.extra))
        ):
            raise InvalidInput(*broken)
        to = destination(config.url)
        path, mark, query = to.target.partition("?")
        path = path.rstrip("/").removesuffix(_PATH) + _PATH
        to = msgspec.structs.replace(to, target=f"{path}{mark}{query}")

        headers: dict[str, HeaderValue] = dict(config.headers)
        if config.api_key is not None and "authorization" not in map(str.lower, headers):
            headers["Authorization"] = f"Bearer {config.api_key}"
        request = HttpRequest(
            method="POST",
            to=to,
            headers=request_headers(headers, to, "POST", "application/json", ctx.idempotency_key),
            body=to_json(_body(config), "prompt", BODY_MAX_BYTES),
        )
        answer = self.send(request, config.timeout, config.max_bytes, ctx)
        if answer.status != 200:
            raise failure_of(answer, f"POST {to.origin}", ctx.mask(_error_words(answer)))
        return _result(answer, config, to.origin)

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return named_ports(config.get("finish"))

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        faults = super().faults_of(config)
        schema, extra, finish = (config.get(name) for name in ("schema", "extra", "finish"))
        if not has_template(schema):
            faults += _schema_faults(schema)
        if isinstance(extra, Mapping):
            faults += _extra_faults(extra)
        for reason, port in finish.items() if isinstance(finish, Mapping) else ():
            if reason in FINISH:
                faults += port_faults(port, "finish", reason)
            else:
                fault = UNKNOWN_FINISH.fault(
                    ("finish", reason),
                    reason=reason,
                    nearest=near(reason, FINISH, 1),
                    known=", ".join(FINISH),
                )
                faults.append(fault)
        return faults


def _schema_faults(schema: Any) -> Iterator[Fault]:
    for fault in [] if schema is None else check_schema(schema):
        yield fault.under("schema")


def _extra_faults(extra: Mapping[str, Any]) -> Iterator[Fault]:
    for name in extra:
        if name in _RESERVED:
            yield RESERVED_FIELD.fault(("extra", name), field=name)


def _body(config: Llm.Config) -> dict[str, Any]:
    prompt = config.prompt
    text = prompt if isinstance(prompt, str) else to_json(prompt, "prompt").decode()
    messages = [{"role": "user", "content": text}]
    if config.system is not None:
        messages.insert(0, {"role": "system", "content": config.system})
    body: dict[str, Any] = {"model": config.model, "messages": messages}
    if config.temperature is not None:
        body["temperature"] = config.temperature
    if config.max_tokens is not None:
        body["max_tokens"] = config.max_tokens
    if config.schema is not None:
        form = {"name": "answer", "strict": config.strict, "schema": config.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return {**body, **config.extra}


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    """What this node type reads of a chat completion."""

    choices: Annotated[list[_Choice], Meta(min_length=1)]
    model: str = ""
    usage: Any = None


def _result(answer: HttpResponse, config: Llm.Config, url: str) -> Complete:
    try:
        completion = msgspec.convert(foreign_json(answer.body), _Completion)
    except msgspec.ValidationError as error:
        raise LlmFailed(INVALID_RESPONSE.fault(url=url, reason=str(error))) from None
    except (ValueError, RecursionError):
        raise LlmFailed(INVALID_RESPONSE.fault(url=url, reason="it is not JSON")) from None

    message, given = completion.choices[0].message, completion.usage
    given = given if isinstance(given, dict) else {}
    usage = {name: _count(given.get(name)) for name in _USAGE}
    reason = REFUSAL if message.refusal else completion.choices[0].finish_reason or "stop"
    port = config.finish.get(reason)
    if port is None and reason == LENGTH:
        raise Permanent(TRUNCATED.fault(tokens=usage["completion_tokens"]))
    if port is None and reason in (REFUSAL, FILTERED):
        raise Permanent(REFUSED.fault(reason=reason))
    if reason in _CALLS:
        raise Permanent(TOOL_CALLS.fault())
    text = message.refusal or message.content
    if text is None and port is None:
        raise LlmFailed(INVALID_RESPONSE.fault(url=url, reason="it has no content"))

    value = None
    if config.schema is not None and port is None:
        value, wrong = _answer(text or "", config.schema)
        if wrong:
            fault = INVALID_ANSWER.fault(faults=wrong, tokens=usage["total_tokens"])
            raise LlmFailed(fault)
    output = {
        "text": text or "",
        "json": value,
        "finish_reason": reason,
        "model": completion.model,
        "usage": usage,
    }
    return complete(output, port_of(port))


def _answer(text: str, schema: dict[str, Any] | bool) -> tuple[Any, str]:
    """The answer as JSON, and what is wrong with it, without quoting it."""
    try:
        value = foreign_json(_unfenced(text).encode())
    except (ValueError, RecursionError):
        return None, "it is not JSON"
    # Names that the schema does not have were chosen by the model.
    known = set(_names(schema))
    wrong = []
    for fault in faults_of(schema, value):
        path = [part if isinstance(part, int) or part in known else "*" for part in fault.where]
        wrong.append(f"{fault.code} at {path_text(tuple(path)) or 'the top'}")
    more = len(wrong) - _FAULTS_MAX
    return value, ", ".join(wrong[:_FAULTS_MAX]) + (f" and {more} more" if more > 0 else "")


def _unfenced(text: str) -> str:
    """The text, or what is inside its code fence. Without a pattern: one could backtrack for
    hours in an answer of line breaks.
    """
    text = text.strip()
    first, line_break, rest = text.partition("\n")
    is_fenced = line_break and first.strip().lower() in (_FENCE, f"{_FENCE}json")
    return rest.removesuffix(_FENCE) if is_fenced and rest.endswith(_FENCE) else text


def _names(schema: Any) -> Iterator[str]:
    """All names in a schema: of properties, and of keywords, which do no harm."""
    if isinstance(schema, Mapping):
        yield from schema
        schema = list(schema.values())
    for inside in schema if isinstance(schema, list) else ():
        yield from _names(inside)


def _count(given: Any) -> int | None:
    return given if type(given) is int and given >= 0 else None


def _error_words(answer: HttpResponse) -> str:
    """Type, code and parameter of the service's error, if they are single words."""
    try:
        error = foreign_json(answer.body)["error"]
        found = [error.get(name) for name in ("type", "code", "param")]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return ""
    words = (each for each in found if isinstance(each, str) and _WORD.fullmatch(each))
    return ", ".join(dict.fromkeys(words))
