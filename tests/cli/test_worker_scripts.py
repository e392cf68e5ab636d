"""``perdure worker --allow-scripts`` as real processes, with one worker and under a supervisor."""

from __future__ import annotations

import pytest

from perdure import CONTEXT, Client, Context, Flow, RunFailed, task
from tests.cli.processes import WorkerProcess

MODULE = """
from perdure import Context, Flow, task

@task
def ask(value: str, ctx: Context) -> list[object]:
    return [ctx.allows_scripts, len(ctx.secret("api-key"))]

asking = Flow("asking").then(ask).build()
"""


@task
def ask(value: str, ctx: Context = CONTEXT) -> list[object]:
    raise AssertionError("executed elsewhere")


asking = Flow("asking").then(ask).build()


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_workers_have_what_the_command_line_and_its_environment_give_them(
    folder, url, options, monkeypatch
):
    (folder / "asking.py").write_text(MODULE)
    monkeypatch.setenv("PERDURE_SECRET_API_KEY", "0123456789")

    with (
        Client(url) as client,
        WorkerProcess("asking", "--store", url, "--allow-scripts", *options, cwd=folder),
    ):
        assert client.submit(asking, "x").result(timeout=30) == [True, 10]


def test_workers_allow_no_scripts_and_know_no_secrets_by_themselves(folder, url):
    (folder / "asking.py").write_text(MODULE)

    with Client(url) as client, WorkerProcess("asking", "--store", url, cwd=folder):
        run = client.submit(asking, "x")
        with pytest.raises(RunFailed, match="set PERDURE_SECRET_API_KEY in the worker's"):
            run.result(timeout=30)
