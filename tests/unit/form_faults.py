"""Faults of a form as the reasons by field, which is how these tests read them."""

from __future__ import annotations

from typing import Any

from perdure.forms.schema import by_field, faults_of


def field_faults(schema: Any, data: Any) -> dict[str, list[str]]:
    return by_field(faults_of(schema, data))
