"""Hypothesis strategies for what may come from outside: good, bad and hostile input.

They are for tests of your own flows and tasks too, and need ``hypothesis``, which Perdure itself
does not. Names without ``odd`` or ``any`` draw what is accepted.
"""

from perdure.testing.strategies.addresses import store_urls
from perdure.testing.strategies.conditions import any_conditions, any_templates
from perdure.testing.strategies.flows import any_flows, flow_texts
from perdure.testing.strategies.forms import answers, any_forms
from perdure.testing.strategies.texts import any_texts, names, odd_texts
from perdure.testing.strategies.times import (
    any_crons,
    any_durations,
    any_moments,
    any_timezones,
    durations,
)
from perdure.testing.strategies.values import any_values, json_values, odd_values

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
