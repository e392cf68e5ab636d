"""The kit as a pytest fixture. Enable it in your top-level ``conftest.py``:

    pytest_plugins = ["perdure.testing.pytest_plugin"]

It is not a pytest entry point, so that test runs without it need not load it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.testing.sync import Kit


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A kit for one test, closed at its end."""
    with Kit() as kit:
        yield kit
