"""Tasks that tell a witness log named by the environment, also from child processes."""

from __future__ import annotations

import os

from perdure import Context, task
from perdure.testing.check import Witness

LOG = "PERDURE_TEST_WITNESS"


@task(isolation="process")
def print_in_process(value: int, ctx: Context) -> str:
    with Witness(os.environ[LOG]).execution(ctx) as execution:
        return execution.nonce
