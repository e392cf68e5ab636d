"""The page about security names the limits that the code has."""

from __future__ import annotations

import re
from inspect import signature

import pytest

from perdure.engine import completion, decide, external_waits, plan
from perdure.expr import budget, pattern, template
from perdure.flows import built
from perdure.flows import check as flow_check
from perdure.flows import settings as run_settings
from perdure.flows.yaml import library, parse
from perdure.forms import schema
from perdure.model import check, graph, payload, run, wait
from perdure.nodes import container, http, llm, script
from perdure.nodes.config import JSON_VALUES_MAX, seconds_of
from perdure.operations import approvals, backend, page
from perdure.store.contract import live
from perdure.transfer import file as export_file
from perdure.worker.worker import Worker
from tests.docs.pages import page as page_of

LIMITS = {
    "name": check.NAME_MAX,
    "name, as JSON": check.NAME_MAX_BYTES,
    "tags of a job, together, as JSON": check.TAGS_MAX_BYTES,
    "limit keys of a job, together, as JSON": check.KEYS_MAX_BYTES,
    "run id": run.RUN_ID_MAX_BYTES,
    "input, result or other payload": payload.PAYLOAD_MAX_BYTES,
    "nesting of a payload": payload.NESTING_MAX,
    "reason or reported error": check.TEXT_MAX,
    "nodes of a flow": flow_check.NODES_MAX,
    "nodes that a flow can start at once, including its child flows": built.STARTS_MAX,
    "settings of the child runs of a run, together": run_settings.CHILDREN_MAX_BYTES,
    "items of a map": graph.MAP_ITEMS_MAX,
    "outputs of a map, together": completion.MAP_OUTPUT_MAX_BYTES,
    "inputs of a node, together, and outputs that make up a result": plan.GATHERED_MAX_BYTES,
    "inputs of nodes that start at once": plan.GATHERED_MAX_BYTES,
    "unfinished items of a map": plan.MAP_WINDOW,
    "YAML or JSON of a flow": parse.TEXT_MAX,
    "nesting of a flow as data": parse.DEPTH_MAX,
    "values of a flow as data": parse.VALUES_MAX,
    "nested files of child flows": library._FILES_DEEP_MAX,
    "text of a rendered config": template.TEXT_MAX,
    "text that a pattern is matched against": pattern.TEXT_MAX,
    "pattern": pattern.PATTERN_MAX,
    "parts of a pattern, with its repeats expanded": pattern.SIZE_MAX,
    "building all patterns of a schema": budget.COST_MAX,
    "evaluation of a condition, with all its patterns": budget.COST_MAX,
    "schema of a form": schema.SCHEMA_MAX_BYTES,
    "validation of an answer": schema.CHECKS_MAX,
    "defaults that a form fills in, together": schema.DEFAULTS_MAX_BYTES,
    "title of an approval, filled in": wait.TITLE_MAX,
    "message of an approval, filled in": wait.MESSAGE_MAX,
    "note of an answer": approvals.NOTE_MAX,
    "line of an export, decompressed": export_file.LINE_MAX_BYTES,
    "reports of nodes that a run has not reached": external_waits.EARLY_REPORTS_MAX,
    "unread signals of one name": backend.UNREAD_SIGNALS_MAX,
    "unread signals of one name, times the size of the one that is sent": decide.UNREAD_MAX_BYTES,
    "response of an `http` or `llm` node": http.BODY_DEFAULT_BYTES,
    "values in the JSON of a response or of a command's output, by its commas and brackets": (
        JSON_VALUES_MAX
    ),
    "request of an `http` node": seconds_of(http.Http.Config(url="").timeout, "timeout"),
    "request of an `llm` node": seconds_of(
        llm.Llm.Config(url="", model="x", prompt="").timeout, "timeout"
    ),
    "output of a command or container, stdout and stderr each": script.OUTPUT_DEFAULT_BYTES,
    "runtime of a container": seconds_of(container.Container.Config(image="").timeout, "timeout"),
    "crashes of workers that a job may cause": signature(Worker).parameters["max_crashes"].default,
    "subscribers of live events in a namespace": live.SUBSCRIBERS_MAX,
    "items of a page": page.PAGE_MAX,
}
ROWS = page_of("docs/concepts/security.md").table_under("Limits by default")


def test_every_limit_is_known():
    assert {name for name, _, _ in ROWS} == set(LIMITS)


@pytest.mark.parametrize("name, default", [row[:2] for row in ROWS])
def test_limits_are_those_of_the_code(name, default):
    assert int(re.sub(r"\D", "", default)) == LIMITS[name]
