"""Hypothesis strategies for external input: valid, invalid and hostile.

Names without ``odd`` or ``any`` draw valid input.
"""

from proof.strategies.flows import (
    answers,
    any_conditions,
    any_flows,
    any_forms,
    any_templates,
    flow_texts,
)
from proof.strategies.text import any_texts, hostile_texts, names, odd_texts
from proof.strategies.values import (
    any_crons,
    any_durations,
    any_moments,
    any_timezones,
    any_values,
    durations,
    json_values,
    odd_values,
    store_urls,
)

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
    "hostile_texts",
    "json_values",
    "names",
    "odd_texts",
    "odd_values",
    "store_urls",
]
