"""The page about security names the limits that the code has."""

from __future__ import annotations

import re
from inspect import signature

import pytest

from perdure.expr import pattern, template
from perdure.flows import check as flow_check
from perdure.flows.yaml import library, parse
from perdure.forms import schema
from perdure.model import check, payload, run
from perdure.nodes import http
from perdure.operations import backend, page
from perdure.worker.worker import Worker
from tests.docs.pages import page as page_of

LIMITS = {
    "name": check.NAME_MAX,
    "run id": run.RUN_ID_MAX_BYTES,
    "input, result or other payload": payload.PAYLOAD_MAX_BYTES,
    "nodes of a flow": flow_check.NODES_MAX,
    "YAML or JSON of a flow": parse.TEXT_MAX,
    "nesting of a flow as data": parse.DEPTH_MAX,
    "nested files of child flows": library._FILES_DEEP_MAX,
    "text of a rendered config": template.TEXT_MAX,
    "text that a pattern is matched against": pattern.TEXT_MAX,
    "schema of a form": schema.SCHEMA_MAX_BYTES,
    "unread signals of one name": backend.UNREAD_SIGNALS_MAX,
    "response of an `http` node": http.BODY_DEFAULT_BYTES,
    "crashes of workers that a job may cause": signature(Worker).parameters["max_crashes"].default,
    "items of a page": page.PAGE_MAX,
}
ROWS = page_of("docs/concepts/security.md").table_under("Limits by default")


def test_every_limit_is_known():
    assert {name for name, _, _ in ROWS} == set(LIMITS)


@pytest.mark.parametrize("name, default", [row[:2] for row in ROWS])
def test_limits_are_those_of_the_code(name, default):
    assert int(re.sub(r"\D", "", default)) == LIMITS[name]
