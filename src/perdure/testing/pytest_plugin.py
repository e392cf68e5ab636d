"""The kit as a pytest fixture. Ask for it in the ``conftest.py`` at the top of your tests:

    pytest_plugins = ["perdure.testing.pytest_plugin"]

It is no entry point of pytest's, so that test runs which do not use it need not load it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.testing.sync import Kit


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A kit of the test's own, closed at its end."""
    with Kit() as kit:
        yield kit
