"""Names as they may be stored: earlier versions took any characters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def older_names() -> Iterator[None]:
    """Accept control characters in names, as earlier versions did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.model.check.control_in", lambda text: "")
        yield
