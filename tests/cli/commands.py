"""Commands run in this process, on one store."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from perdure.cli.app import app


class Commands:
    def __init__(self, url: str | None) -> None:
        self._environment = {"PERDURE_STORE": url, "NO_COLOR": "1"}

    def __call__(self, *arguments: str) -> Answer:
        result = CliRunner(env=self._environment).invoke(
            app, arguments, prog_name="perdure", catch_exceptions=False
        )
        return Answer(result.exit_code, result.stdout, result.stderr)


class Answer:
    """What a command printed, and its exit code."""

    def __init__(self, exit_code: int, out: str, error: str) -> None:
        self.exit_code = exit_code
        self.out = out
        self.error = error

    def __repr__(self) -> str:
        return f"exit {self.exit_code}\n{self.out}\n{self.error}"

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def items(self) -> Any:
        """A page as JSON."""
        return self.json["items"]

    @property
    def rows(self) -> list[list[str]]:
        """A printed table, heads first."""
        return [line.split() for line in self.out.splitlines()]


def assert_refused(answer: Answer, exit_code: int, *words: str) -> None:
    """One line on stderr, with these words in it."""
    assert answer.exit_code == exit_code, answer
    assert answer.out == ""
    [line] = answer.error.splitlines()
    assert line.startswith("perdure: ")
    assert all(word in line for word in words), line
