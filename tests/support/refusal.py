"""Refusals by code and arguments, and failures by code, whatever the words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perdure.diagnostics import Fault, Path
from perdure.errors import JobUnsuccessful, PerdureError, RunUnsuccessful


@contextmanager
def refused(
    code: str,
    error: type[PerdureError] = PerdureError,
    *,
    where: Path | None = None,
    **args: Any,
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error with this code and these arguments, as a whole or as one of its faults.

    ``where`` is the path of that fault.
    """
    with pytest.raises(error) as caught:
        yield caught
    found = [caught.value.diagnostic, *caught.value.faults]
    assert code in {each.code for each in found}, f"{caught.value!r} has {[e.code for e in found]}"
    fitting = [
        each for each in found if each.code == code and args.items() <= dict(each.args).items()
    ]
    assert fitting, f"no {code} with {args}: {[dict(each.args) for each in found]}"
    places = {each.where for each in fitting if isinstance(each, Fault)}
    assert where is None or where in places, f"{code} is not at {where} but at {places}"


@contextmanager
def failing(
    code: str | None, error: type[JobUnsuccessful | RunUnsuccessful], *, type: str | None = None
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect a run or job that ended with a failure of this code; that of a user's own
    exception has none, but a type."""
    with pytest.raises(error) as caught:
        yield caught
    failure = caught.value.failure
    assert failure is not None
    assert (failure.code or None) == code, failure
    assert type in (None, failure.type), failure


async def fails(
    handle: Any,
    code: str | None,
    error: type[JobUnsuccessful | RunUnsuccessful],
    *,
    type: str | None = None,
) -> None:
    """Wait for the end of a run or job, and expect such a failure."""
    with failing(code, error, type=type):
        await handle.result(30)
