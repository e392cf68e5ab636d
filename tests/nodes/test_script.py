"""Commands: what they get, what is kept of them, and that nothing of them is left behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Aborted, Permanent
from perdure.nodes.call import node_type_task
from perdure.nodes.config import config_faults
from perdure.nodes.script import CommandFailed, Script
from perdure.tasks.context import AbortSignal
from perdure.worker.secrets import Masker
from tests.nodes.contexts import Scope, context
from tests.support.refusal import refused

PYTHON = sys.executable


def executed(
    command: list[Any],
    abort: AbortSignal | None = None,
    masker: Masker | None = None,
    **config: Any,
) -> Any:
    ctx = context(Scope(allows_scripts=True, masker=masker), abort=abort)
    return node_type_task(Script(), "flow.node")({"command": command, **config}, ctx)


def program(text: str) -> list[str]:
    return [PYTHON, "-c", text]


class TestPermission:
    def test_is_needed(self, tmp_path):
        made = tmp_path / "made"
        body = node_type_task(Script(), "flow.node")
        with refused("script.not_allowed", Permanent):
            body({"command": ["touch", str(made)]}, context())
        assert not made.exists()


class TestTheCommand:
    def test_gives_exit_code_and_outputs(self):
        text = "import sys; print('out'); print('err', file=sys.stderr)"
        result = executed(program(text))
        assert result.port == ""
        assert result.output == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n", "json": None}

    def test_is_never_read_by_a_shell(self, tmp_path):
        sly = f"$(touch {tmp_path}/made); `id` && * | > x"
        assert executed(["echo", sly]).output["stdout"] == f"{sly}\n"
        assert list(tmp_path.iterdir()) == []

    def test_takes_numbers_as_arguments(self):
        assert executed(["echo", 3, 2.5, "x"]).output["stdout"] == "3 2.5 x\n"

    @pytest.mark.parametrize(
        "given, read", [("a\nb", "a\nb"), ({"a": [1]}, '{"a":[1]}'), (0, "0"), (None, ""), ("", "")]
    )
    def test_reads_texts_as_they_are_and_all_else_as_json(self, given, read):
        assert executed(["cat"], stdin=given).output["stdout"] == read

    def test_gets_a_lot_while_it_says_a_lot(self):
        text = "x" * 700_000
        assert executed(["cat"], stdin=text).output["stdout"] == text

    def test_may_leave_unread_what_it_is_given(self):
        assert executed(["true"], stdin="x" * 1_000_000).output["exit_code"] == 0

    @pytest.mark.parametrize(
        "written, found",
        [
            ('{"a": [1]}', {"a": [1]}),
            ("[1]", None),
            ("3", None),
            ("{'a'}", None),
            ("", None),
            ("[" * 50_000, None),
        ],
    )
    def test_gives_an_object_on_stdout_as_json(self, written, found):
        assert executed(["cat"], stdin=written).output["json"] == found

    def test_gives_no_json_of_too_many_values(self):
        """Finding 8: small objects take thirty times as much memory as their JSON."""
        written = '{"a": [' + "{}," * 1_000_001 + "0]}"
        assert executed(["cat"], stdin=written, max_bytes=len(written)).output["json"] is None

    def test_gives_bytes_that_are_no_text_replaced(self):
        text = "import sys; sys.stdout.buffer.write(b'a\\xff\\x00b')"
        assert executed(program(text)).output["stdout"] == "a�\x00b"

    def test_gets_nothing_of_the_worker_but_a_few_variables(self, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_KEY", "sesame")
        text = "import os, json; print(json.dumps(dict(os.environ)))"

        found = executed(program(text), env={"OWN": "x", "N": 3, "YES": True}).output["json"]

        assert found["PATH"] == os.environ["PATH"]
        assert (found["OWN"], found["N"], found["YES"]) == ("x", "3", "true")
        assert "PERDURE_SECRET_KEY" not in found
        few = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "OWN", "N", "YES"}
        assert found.keys() <= few | {"LC_CTYPE"}  # which Python sets by itself

    def test_works_in_the_given_folder(self, tmp_path):
        assert executed(["pwd"], cwd=str(tmp_path)).output["stdout"].strip() == str(tmp_path)

    def test_has_no_files_of_the_worker_open(self):
        with open(os.devnull) as other:
            os.set_inheritable(other.fileno(), True)
            text = f"import os; print(os.path.exists('/proc/self/fd/{other.fileno()}'))"
            assert executed(program(text)).output["stdout"] == "False\n"


class TestTheEnd:
    def test_of_another_code_fails_with_the_end_of_stderr(self):
        text = "import sys; print('x ' * 5000 + 'no paper', file=sys.stderr); sys.exit(3)"
        with refused("script.failed", CommandFailed, exit_code=3) as caught:
            executed(program(text))
        [fault] = caught.value.faults
        assert fault.args["stderr"].endswith("no paper")
        assert len(fault.args["stderr"]) < 2000

    def test_of_another_code_may_have_a_port(self):
        ends = {"2": "odd", "3": "default"}
        assert executed(program("exit(2)"), exit=ends).port == "odd"
        assert executed(program("exit(3)"), exit=ends).port == ""
        assert executed(program("exit(2)"), exit=ends).output["exit_code"] == 2
        with refused("script.failed", CommandFailed, exit_code=4):
            executed(program("exit(4)"), exit=ends)
        assert Script().ports_of({"exit": ends}) == ("odd",)

    def test_by_a_signal_fails(self):
        text = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        with refused("script.killed", CommandFailed, signal=9):
            executed(program(text), exit={"9": "odd"})

    @pytest.mark.parametrize(
        "command, config",
        [
            (["no-such-program-here"], {}),
            (["/"], {}),
            (["echo", "a\x00b"], {}),
            (["echo"], {"cwd": "/no/such/folder"}),
            (["echo"], {"cwd": "a\x00b"}),
            (["echo"], {"env": {"A=B": "x"}}),
            (["echo"], {"env": {"": "x"}}),
            (["echo"], {"env": {"A": "x\x00"}}),
            ([""], {}),
            ([], {}),
            ([None], {}),
            ("echo hello", {}),
            (["echo"], {"timeout": "0s"}),
        ],
    )
    def test_comes_before_the_beginning_for_what_cannot_be_started(self, command, config):
        with pytest.raises(Permanent):
            executed(command, **config)


class TestLimits:
    def test_output_is_cut_with_a_mark(self):
        text = (
            "import sys; print('A ' + 'oo ' * 100_000 + 'Z'); "
            "print('A ' + 'ee ' * 100_000 + 'Z', file=sys.stderr)"
        )

        output = executed(program(text), max_bytes=1000).output

        assert output["stdout"].startswith("A oo oo ")
        assert output["stdout"].endswith("\n… (truncated: 300004 bytes in all) …")
        assert output["stderr"].startswith("… (truncated: 300004 bytes in all) …\n")
        assert output["stderr"].endswith("ee ee Z\n")
        assert len(output["stdout"]) < 1100
        assert len(output["stderr"]) < 1100

    @pytest.mark.parametrize(
        "text",
        [
            "'. ' * 45 + SECRET + ' .' * 45",
            "'. ' * 45 + SECRET + ' .' * 40_000 + SECRET + ' .' * 45",
            "f'{SECRET} ' * 5",
            "f'{SECRET} ' * 5_000",
            "f'{SECRET} ' * 40 + '. ' * 33_000 + f'{SECRET} ' * 40",
        ],
    )
    def test_secrets_are_masked_before_output_is_cut(self, text):
        """Finding 10: of one with spaces, the first or last words were left."""
        secret = "open the sesame now"
        both = f"import sys; SECRET = {secret!r}; print({text}); print({text}, file=sys.stderr)"
        output = executed(program(both), masker=Masker([secret]), max_bytes=100).output
        for name in ("stdout", "stderr"):
            assert "truncated" in output[name]
            assert len(output[name]) < 160
            assert not set(secret.split()) & set(output[name].split())

    def test_an_object_that_was_cut_is_no_json(self):
        written = '{"a": 1}' + " " * 100
        output = executed(["cat"], stdin=written, max_bytes=50).output
        assert output["json"] is None

    def test_output_without_an_end_is_cut_off_in_time(self):
        with pytest.raises(TimeoutError):
            executed(["yes"], timeout="300ms", max_bytes=100)

    @pytest.mark.parametrize(
        "script",
        ["sleep 60 & echo $$ $! > {pids}; wait", "trap '' TERM; echo $$ > {pids}; sleep 60"],
    )
    def test_time_ends_the_command_and_all_that_it_started(self, tmp_path, script):
        pids = tmp_path / "pids"
        with pytest.raises(TimeoutError):
            executed(["sh", "-c", script.format(pids=pids)], timeout="1s")
        assert_gone(pids)

    def test_what_it_left_running_does_not_hold_it_up(self, tmp_path):
        pids = tmp_path / "pids"
        text = (
            "import os, subprocess\n"
            f"child = subprocess.Popen([{PYTHON!r}, '-c', 'import time; time.sleep(60)'])\n"
            f"open({str(pids)!r}, 'w').write(str(child.pid))\n"
            "print('done', flush=True)\n"
        )

        output = executed(program(text), timeout="50s").output

        assert output["stdout"] == "done\n"
        assert_gone(pids)

    def test_what_got_away_does_not_hold_it_up_either(self, tmp_path):
        pids = tmp_path / "pids"
        text = (
            "import os, subprocess\n"
            f"child = subprocess.Popen([{PYTHON!r}, '-c', 'import time; time.sleep(60)'],"
            " start_new_session=True)\n"
            f"open({str(pids)!r}, 'w').write(str(child.pid))\n"
            "print('done', flush=True)\n"
        )

        try:
            assert executed(program(text), timeout="50s").output["stdout"] == "done\n"
        finally:
            os.kill(int(pids.read_text()), 9)

    def test_an_abort_ends_it(self, tmp_path):
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        abort = AbortSignal()
        text = f"import os, time; open({str(fifo)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

        def end() -> None:
            fifo.with_name("pids").write_text(fifo.read_text())  # once it has begun
            abort.fire("aborted")

        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(Aborted):
            executed(program(text), abort)
        ending.join()

        assert_gone(fifo.with_name("pids"))

    def test_an_abort_before_it_began_ends_it(self):
        abort = AbortSignal()
        abort.fire("aborted")
        with pytest.raises(Aborted):
            executed(["sleep", "60"], abort)


class TestFaults:
    @pytest.mark.parametrize(
        "changed, where",
        [
            ({"command": "echo hello"}, ("command",)),
            ({"command": []}, ("command",)),
            ({"command": ["echo", {"a": 1}]}, ("command", 1)),
            ({"timeout": "soon"}, ("timeout",)),
            ({"exit": {"256": "x"}}, ("exit", "256")),
            ({"exit": {"-1": "x"}}, ("exit", "-1")),
            ({"exit": {"x": "x"}}, ("exit", "x")),
            ({"exit": {"2": ""}}, ("exit", "2")),
            ({"exit": {"2": "{{ p }}"}}, ("exit", "2")),
            ({"shell": True}, ("shell",)),
        ],
    )
    def test_are_found_before_it_runs(self, changed, where):
        found = config_faults(Script(), {"command": ["echo", "{{ x }}"], **changed})
        assert [fault.where for fault in found] == [where]

    def test_are_none_in_templates(self):
        config = {"command": ["echo", "{{ a }}"], "env": {"A": "{{ b }}"}, "timeout": "{{ t }}"}
        assert config_faults(Script(), config) == []


def assert_gone(pids: Path) -> None:
    """The processes were killed; a moment may pass until the system has noticed."""
    until = time.monotonic() + 10
    for pid in map(int, pids.read_text().split()):
        while is_running(pid):
            assert time.monotonic() < until, f"process {pid} still runs"
            os.sched_yield()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
