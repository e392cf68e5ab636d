"""The check of the examples itself: it notices what is wrong, and skips nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.acting import shell
from tests.docs.pages import ROOT, Page
from tests.docs.scripts import missing_lines, needs_database, outputs_of, script_of, write_script

FENCE = "`" * 3


def page_with(folder: Path, *blocks: tuple[str, str]) -> Page:
    path = folder / "sample.md"
    text = "".join(f"Words.\n\n{FENCE}{info}\n{code}\n{FENCE}\n\n" for info, code in blocks)
    path.write_text(f"# Sample\n\n{text}")
    return Page(path)


def run(page: Page, folder: Path) -> subprocess.CompletedProcess[str]:
    script = write_script(page, folder, None)
    return subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


class TestRunningAPage:
    def test_runs_blocks_in_order_in_one_namespace(self, tmp_path):
        page = page_with(tmp_path, ("python", "a = 1"), ("python", "print(a + 1)"))

        assert run(page, tmp_path).stdout == "2\n"

    def test_reports_an_error_by_its_line_in_the_page(self, tmp_path):
        page = page_with(tmp_path, ("text", "Not run."), ("python", "\nraise ValueError('here')"))
        line = page.text.split("\n").index("raise ValueError('here')") + 1

        done = run(page, tmp_path)

        assert done.returncode != 0
        assert f"line {line}, in <module>" in done.stderr

    def test_saves_a_block_that_names_its_file(self, tmp_path):
        page = page_with(tmp_path, ("python", "# five.py\nN = 5"), ("python", "from five import N"))

        assert run(page, tmp_path).returncode == 0
        assert (tmp_path / "five.py").read_text() == "# five.py\nN = 5\n"

    def test_runs_the_lines_of_a_shell_block(self, tmp_path):
        page = page_with(
            tmp_path, ("python", "# hi.py\nprint('hi')"), ("sh", "# a remark\npython hi.py")
        )

        assert run(page, tmp_path).stdout == "hi\n"

    def test_puts_the_database_of_the_test_in_place_of_the_examples(self, tmp_path):
        code = 'a = "postgresql://localhost/app?pool=2"\nb = "postgresql+psycopg://localhost/app"'
        page = page_with(tmp_path, ("python", code))

        script = script_of(page, "postgresql://ann:pw@db:99/docs_1")

        assert needs_database(page)
        assert 'a = "postgresql://ann:pw@db:99/docs_1?pool=2"' in script
        assert 'b = "postgresql+psycopg://ann:pw@db:99/docs_1"' in script


class TestOutputs:
    def test_lines_must_come_in_order_among_others(self):
        assert missing_lines(["a", "c"], "a\nb\nc\n") == []
        assert missing_lines(["c", "a"], "a\nb\nc\n") == ["a"]

    def test_an_ellipsis_stands_for_anything(self):
        assert missing_lines(["job … is done"], "job 17 is done\n") == []
        assert missing_lines(["job … is done"], "job 17 is dead\n") == ["job … is done"]

    def test_only_blocks_that_say_so_are_outputs(self, tmp_path):
        page = page_with(tmp_path, ("text", "a picture"), ("text output", "printed"))

        assert outputs_of(page) == ["printed"]


class TestShellLines:
    @pytest.mark.parametrize(
        "line",
        [
            "rm -r everything",
            "make coffee",
            "pip install something-else",
            "pip install 'perdure[nothing]'",
            "perdure jobs list &",
            "perdure nothing",
        ],
    )
    def test_what_is_not_known_is_refused(self, line):
        with pytest.raises(AssertionError):
            shell(line)

    @pytest.mark.parametrize(
        "line", ["perdure jobs get ID --colour red", "perdure jobs get ID ID", "perdure jobs ID"]
    )
    def test_a_command_that_is_not_run_is_parsed(self, line):
        with pytest.raises(Exception, match=r"(?i)no such|unexpected|names no"):
            shell(line)

    def test_a_command_about_a_job_that_is_parsed_is_not_run(self):
        shell("perdure jobs get ID --store sqlite:///nowhere.db --json")
