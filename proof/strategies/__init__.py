"""Hypothesis strategies for what may come from outside: good, bad and hostile input.

They are for tests of your own flows and tasks too, and need ``hypothesis``, which Perdure itself
does not. Names without ``odd`` or ``any`` draw what is accepted.
"""

from proof.strategies.addresses import store_urls
from proof.strategies.conditions import any_conditions, any_templates
from proof.strategies.flows import any_flows, flow_texts
from proof.strategies.forms import answers, any_forms
from proof.strategies.texts import any_texts, names, odd_texts
from proof.strategies.times import (
    any_crons,
    any_durations,
    any_moments,
    any_timezones,
    durations,
)
from proof.strategies.values import any_values, json_values, odd_values

__all__ = [
    "answers",
    "any_conditions",
    "any_crons",
    "any_durations",
    "any_flows",
    "any_forms",
    "any_moments",
    "any_templates",
    "any_texts",
    "any_timezones",
    "any_values",
    "durations",
    "flow_texts",
    "json_values",
    "names",
    "odd_texts",
    "odd_values",
    "store_urls",
]
