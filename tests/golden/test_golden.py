"""Flows have the versions that they had, and wrong ones the faults, each with code and place."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.golden.fault_places import faults_of, golden_inputs
from tests.golden.flow_versions import GOLDEN, ROOT, Found

REWRITE = "python -m tests.golden.flow_versions --write"


def test_every_flow_still_has_the_version_that_it_had():
    golden: list[str] = json.loads(GOLDEN.read_text("utf-8"))

    found = found_in_a_process_of_its_own()

    lost = [text for text in golden if text not in found]
    names = {text.rpartition("@")[0] for text in lost}
    # Flows that are new may be added to the file at any time; here they help to see what changed.
    instead = {
        text: where
        for text, where in found.items()
        if text not in golden and text.rpartition("@")[0] in names
    }
    assert lost == [], (
        f"flows with these versions are gone: {lost}; of the same names, new: {instead}. Stored "
        f"runs name a version: if these flows themselves were changed or removed, run {REWRITE}"
    )


def test_examples_documentation_and_demo_are_among_them():
    golden: list[str] = json.loads(GOLDEN.read_text("utf-8"))
    names = {text.rpartition("@")[0] for text in golden}
    assert {"orders", "expenses", "review_gate", "statistics", "catalogue", "ship_as_yaml"} <= names


def found_in_a_process_of_its_own() -> Found:
    """Importing all tests would leave traces in this one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.flow_versions"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Found = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("given", golden_inputs(), ids=lambda given: given["text"][:60])
def test_faults_are_what_and_where_they_were(given):
    found = faults_of(given)
    assert found
    assert found == given["faults"]
