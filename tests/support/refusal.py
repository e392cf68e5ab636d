"""Refusals by code and arguments, whatever the words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perdure.errors import PerdureError


@contextmanager
def refused(
    code: str, error: type[PerdureError] = PerdureError, **args: Any
) -> Iterator[pytest.ExceptionInfo[PerdureError]]:
    """Expect an error with this code and these arguments, as a whole or as one of its faults."""
    with pytest.raises(error) as caught:
        yield caught
    found = [caught.value.diagnostic, *caught.value.faults]
    assert code in {each.code for each in found}, f"{caught.value!r} has {[e.code for e in found]}"
    assert any(each.code == code and args.items() <= dict(each.args).items() for each in found), (
        f"no {code} with {args}: {[dict(each.args) for each in found]}"
    )
