"""The tests pass in the background, where a shell has its children ignore SIGINT."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.source_tree import ROOT

SENDS_SIGINT = (
    "tests/client/test_sync.py::TestRun::test_cancels_the_coroutine_of_a_caller_that_is_interrupted"
)


def test_a_test_that_interrupts_passes_where_sigint_is_ignored():
    pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", SENDS_SIGINT]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *pytest],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
