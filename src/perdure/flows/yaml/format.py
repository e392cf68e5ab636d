"""Every key of a flow as data: what may stand there, and what it means.

The published schema is made of this, and files are checked against the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.model.graph import FAIL
from perdure.model.job import PRIORITY_MAX, PRIORITY_MIN
from perdure.model.retry import RETRIES_MAX

Fragment = Mapping[str, Any]

TEXT: Final[Fragment] = {"type": "string"}
NAME: Final[Fragment] = {"type": "string", "minLength": 1, "maxLength": 200}
FLAG: Final[Fragment] = {"type": "boolean"}
DURATION: Final[Fragment] = {
    "anyOf": [{"type": "string", "minLength": 1}, {"type": "number", "minimum": 0}],
    "examples": ["30s", "5m", "1h30m", "2d"],
}
NAMES: Final[Fragment] = {"type": "array", "items": NAME}
ANY_OBJECT: Final[Fragment] = {"type": "object"}
SCHEMA: Final[Fragment] = {"type": ["object", "boolean"]}
CONDITION: Final[Fragment] = {"$ref": "#/$defs/condition"}


def described(fragment: Fragment, description: str, **more: Any) -> dict[str, Any]:
    return {"description": description, **fragment, **more}


def an_object(
    properties: Mapping[str, Fragment], *, required: tuple[str, ...] = ()
) -> dict[str, Any]:
    made = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


CONDITION_DEFINITION: Final[Fragment] = {
    "description": "A condition on properties; a list means all of them.",
    "anyOf": [
        {"type": "array", "items": CONDITION},
        {
            "type": "object",
            "properties": {
                "property": {"type": "string"},
                "op": {
                    "enum": [
                        "eq", "ne", "lt", "le", "gt", "ge", "in", "contains", "exists", "matches",
                    ]
                },
                "value": {},
                "all": {"type": "array", "items": CONDITION},
                "any": {"type": "array", "items": CONDITION},
                "not": CONDITION,
            },
            "additionalProperties": False,
        },
    ],
}  # fmt: skip

TARGETS: Final[Fragment] = {
    "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": NAME}]
}
NEXT: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": NAME},
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": NAME},
                    {"type": "null"},
                ]
            },
        },
    ]
}
AFTER: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": NAME},
        {"type": "object", "additionalProperties": TARGETS},
    ]
}
INPUT: Final[Fragment] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        an_object(
            {
                "from": described(NAME, "input.PATH, NODE.output.PATH or secret.NAME."),
                "default": {"description": "Where it is missing, and on_missing is default."},
            },
            required=("from",),
        ),
    ]
}
RETRY: Final[Fragment] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX},
        an_object(
            {
                "retries": {"type": "integer", "minimum": 0, "maximum": RETRIES_MAX},
                "first": described(DURATION, "Before the first retry.", default="1s"),
                "factor": {
                    "description": "How much longer each further one waits.",
                    "type": "number",
                    "minimum": 1,
                    "default": 2,
                },
                "max": described(DURATION, "The longest delay.", default="5m"),
                "jitter": described(FLAG, "Half the delay at random.", default=True),
                "on": described(NAMES, "Only these types of exceptions."),
                "never_on": described(NAMES, "All but these types of exceptions."),
            },
            required=("retries",),
        ),
    ]
}
CHECK: Final[Fragment] = an_object(
    {
        "schema": described(SCHEMA, "JSON Schema that the output must fit."),
        "condition": CONDITION,
        "advisory": described(FLAG, "Only note it in the log.", default=False),
    }
)

FLOW_KEYS: Final[Mapping[str, Fragment]] = {
    "$schema": described(TEXT, "For editors of JSON."),
    "flow": described(NAME, "The name of the flow."),
    "description": described(TEXT, "For people; no part of the version."),
    "on_failure": {
        "description": "Whether branches that have nothing to do with a failed node are finished.",
        "enum": ["stop", "finish"],
        "default": "stop",
    },
    "cooldown": described(DURATION, "A run that comes sooner after the last one is skipped."),
    "gathers": described(FLAG, "The result is an object by last nodes, also if there is one."),
}

CALL_KEYS: Final = ("retry", "timeout", "priority", "queue", "tags")
KIND_KEYS: Final = (
    "config", "inputs", "gathers", *CALL_KEYS, "on_error", "on_missing", "on_timeout",
    "input_schema", "output_schema", "check", "undo", "ports",
)  # fmt: skip

NODE_KEYS: Final[Mapping[str, Fragment]] = {
    "id": described(NAME, "The name of the node; once in a flow."),
    "task": described(NAME, "The task that is called; short for kind: task."),
    "kind": described(NAME, "What the node is; see the list of kinds."),
    "description": described(TEXT, "For people; no part of the version."),
    "config": {"description": "Settings of the kind; of a task, its arguments. Templates."},
    "inputs": {
        "description": "What it takes, by local name: input.PATH, NODE.output.PATH, secret.NAME.",
        "type": "object",
        "additionalProperties": INPUT,
    },
    "next": described(NEXT, "What follows: a node, several, or by port. PORT: null ends there."),
    "after": described(AFTER, "What it follows: a, a:port, several, or {name: a} to gather."),
    "gathers": described(FLAG, "Takes the outputs before it in one object, by name."),
    "retry": described(RETRY, "How often a failed attempt is tried again."),
    "timeout": described(DURATION, "How long one attempt may take."),
    "priority": {
        "description": f"{PRIORITY_MIN} is the most urgent.",
        "type": "integer",
        "minimum": PRIORITY_MIN,
        "maximum": PRIORITY_MAX,
    },
    "queue": described(NAME, "The queue that its job waits in."),
    "tags": described(NAMES, "What a worker must offer."),
    "on_error": described(NAME, "fail, continue, or a port.", default=FAIL),
    "on_missing": {
        "description": "What follows where an input or the key of a template is missing.",
        "enum": ["error", "default", "skip"],
        "default": "error",
    },
    "on_timeout": described(NAME, "After a pause: fail, continue, or a port.", default=FAIL),
    "input_schema": described(SCHEMA, "JSON Schema that the input must fit."),
    "output_schema": described(SCHEMA, "JSON Schema that the output must fit."),
    "check": described(CHECK, "What the output must be like, looked at after success."),
    "undo": described(NAME, "The task that takes back what this node did."),
    "ports": described(NAMES, "The ports that a result may choose; else the keys of next."),
}
COMMON_KEYS: Final = ("id", "kind", "description", "next", "after")

_BODY: Final[Mapping[str, Fragment]] = {
    "task": described(NAME, "The task that is called."),
    "flow": described(NAME, "Or the flow that is run: its name, or a file beside this one."),
}

CONFIGS: Final[Mapping[str, Fragment]] = {
    "task": ANY_OBJECT,
    "route": an_object(
        {
            "key": described(NAME, "The key of the input whose value is the branch."),
            "task": described(NAME, "Or the task that returns it."),
        }
    ),
    "map": an_object(
        {
            **_BODY,
            "over": described(NAME, "The key of the input under which the list is."),
            "concurrency": {"type": "integer", "minimum": 1},
        }
    ),
    "loop": an_object(
        {
            **_BODY,
            "until": {
                "description": "A key of the output, a condition on it, or {task: NAME}.",
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": CONDITION},
                    {"type": "object"},
                ],
            },
            "max_iterations": {"type": "integer", "minimum": 1, "default": 50},
            "on_max": described(NAME, "fail, continue, or a port.", default=FAIL),
        },
        required=("until",),
    ),
    "delay": an_object(
        {
            "for": described(DURATION, "How long it waits."),
            "until": described(TEXT, "Or the time that it waits for; a template."),
        }
    ),
    "signal": an_object(
        {
            "name": described(NAME, "Of the signal; else the id of the node."),
            "timeout": described(DURATION, "How long it waits."),
            "on_timeout": described(NAME, "fail, continue, or a port.", default=FAIL),
            "where": described(CONDITION, "What the payload must be like."),
        }
    ),
    "approval": an_object(
        {
            "title": described(TEXT, "What is to decide, in a line; a template."),
            "message": described(TEXT, "What one needs to know; a template."),
            "form": described(SCHEMA, "JSON Schema of the data of an answer."),
            "show": described(NAMES, "The inputs that deciders see; else all."),
            "data": {"description": "What an answer may change; a template."},
            "deciders": described(NAMES, "Names or roles; none: whoever comes."),
            "policy": {
                "anyOf": [
                    {"enum": ["any", "all"]},
                    an_object(
                        {"at_least": {"type": "integer", "minimum": 1}}, required=("at_least",)
                    ),
                ],
                "default": "any",
            },
            "answers": described(NAMES, "What may be answered; else approve and reject."),
            "deadline": described(DURATION, "How long it stays open."),
            "on_timeout": {
                "description": "fail, continue, a port, or the answer that counts then.",
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    an_object({"decision": NAME, "data": {}}, required=("decision",)),
                ],
                "default": FAIL,
            },
            "on_reject": described(NAME, "fail, continue, or a port.", default=FAIL),
            "reminders": {"type": "array", "items": DURATION},
            "escalate": {
                "type": "array",
                "items": an_object({"after": DURATION, "to": NAMES}, required=("after", "to")),
            },
            "notify": described(NAME, "The task that tells people."),
        },
        required=("title",),
    ),
    "flow": an_object(
        {"flow": described(NAME, "Its name, or a file beside this one.")}, required=("flow",)
    ),
}
"""The config of each kind that is a part of the engine."""

KEYS_BY_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "task": ("task", *KIND_KEYS),
    "route": ("config", *CALL_KEYS, "on_error", "ports"),
    "map": ("config", "inputs", *CALL_KEYS, "on_error", "on_missing", "undo"),
    "loop": ("config", "inputs", *CALL_KEYS, "on_error", "on_missing", "undo"),
    "delay": ("config", "inputs", "on_missing"),
    "signal": ("config", "inputs", "on_missing"),
    "approval": ("config", "inputs", "on_missing"),
    "flow": ("config", "inputs", "on_error", "on_missing", "undo"),
}
"""What a node of each of them may have, besides what all have."""
