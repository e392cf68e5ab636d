"""The table of node options: everything that describes or reads options follows from it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from perdure import Flow
from perdure.diagnostics import Fault
from perdure.flows import options
from perdure.flows.options import FORMS, NODE_TYPE, read_options
from perdure.flows.yaml.schema import NODE_KEYS
from tests.unit.flow_samples import codes, fetch, only_fault, refuse

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "": ("use", {"config": "config"}),
    "task": ("then", {"body": "body"}),
    "route": ("route", {"key": "key", "branches": "branches"}),
    "map": ("map", {"body": "body"}),
    "loop": ("loop", {"body": "body"}),
    "delay": ("delay", {}),
    "signal": ("wait_for_signal", {}),
    "approval": ("approve", {}),
    "flow": ("flow", {"flow": "body"}),
}
"""The method of the builder for each form, and parameters that are called otherwise."""
NO_OPTIONS = {"self", "name", "after", "type", "node_type", "default", "keys", "options"}


@pytest.mark.parametrize(
    "form", [NODE_TYPE, *FORMS.values()], ids=lambda form: form.type or "node_type"
)
def test_signatures_of_the_builder_have_every_option_and_no_other(form):
    method, otherwise = METHODS[form.type]
    parameters = inspect.signature(getattr(Flow, method)).parameters
    typed = str(parameters["options"].annotation)  # Unpack[TaskOptions]
    own = getattr(options, typed.removeprefix("Unpack[").removesuffix("]"))
    given = {*parameters, *own.__optional_keys__} - NO_OPTIONS

    assert {otherwise.get(each, each) for each in given} | {*otherwise.values()} == {
        *form.parameters
    }


@pytest.mark.parametrize(
    "form", [NODE_TYPE, *FORMS.values()], ids=lambda form: form.type or "node_type"
)
def test_every_option_has_one_place_in_a_file(form):
    places = [option.yaml for option in form.options]

    assert len(set(places)) == len(places)
    assert all(
        place[0] == "config" if len(place) > 1 else place[0] in NODE_KEYS for place in places
    )


ROWS = [(form, option) for form in (NODE_TYPE, *FORMS.values()) for option in form.options]


@pytest.mark.parametrize("form, option", ROWS, ids=lambda each: getattr(each, "name", ""))
def test_what_cannot_be_read_has_a_path_and_a_stand_in(form, option):
    if option.read is options.as_given:
        return  # what it names is looked for by the maker of the node
    faults: list[Fault] = []

    values = read_options(form, {option.parameter: object()}, faults)

    assert option.parameter in {fault.where[0] for fault in faults if fault.where}
    assert values[option.parameter] == option.instead


def test_what_is_wrong_already_is_not_read_again():
    faults: list[Fault] = []

    values = read_options(FORMS["approval"], {"title": "x"}, faults, wrong={"deadline", "title"})

    assert (values["title"], values["deadline"]) == ("?", options.FOREVER_MS)
    assert faults == []


@pytest.mark.parametrize("wrong", [{"on_error": 5}, {"on_timeout": ""}, {"ports": "late"}])
def test_what_follows_a_port_that_could_not_be_read_is_not_blamed(wrong):
    flow = Flow("f").then(fetch, **wrong).then(refuse, after="fetch:late")

    [option] = wrong
    assert only_fault(flow).where == ("nodes", "fetch", option)


def test_a_time_that_could_not_be_read_makes_no_other_fault():
    waits: Any = {"timeout": "soon", "on_timeout": "continue"}
    asks: Any = {"deadline": "soon", "on_timeout": "continue", "reminders": ["2d"]}

    assert codes(Flow("f").wait_for_signal("go", **waits)) == ["argument.duration"]
    assert codes(Flow("f").approve("Go?", **asks)) == ["argument.duration"]
