"""Every fault of a flow as data is where it was, however it is worded."""

from __future__ import annotations

import pytest

from tests.golden.fault_places import golden_inputs, places_of


@pytest.mark.parametrize("given", golden_inputs(), ids=lambda given: given["text"][:60])
def test_faults_are_where_they_were(given):
    found = places_of(given)
    assert found
    assert found == given["places"]
