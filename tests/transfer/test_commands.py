"""``perdure store export`` and ``perdure store import``, as typed."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.commands import Commands
from tests.transfer.registered import register_worker


@pytest.fixture
def perdure(source_url: str) -> Commands:
    return Commands(source_url)


class TestCommands:
    def test_move_a_store(self, perdure, tmp_path, bare_postgres_url):
        file = tmp_path / "work.jsonl.gz"
        written = perdure("store", "export", str(file))
        read = perdure("store", "import", str(file), "--store", bare_postgres_url)
        listed = perdure("runs", "list", "--json", "--store", bare_postgres_url)

        assert (written.exit_code, read.exit_code) == (0, 0), (written, read)
        assert written.out.startswith("exported ")
        assert f"perdure store import {file} --store" in written.out
        assert "1 schedule, 1 paused queue, as of 20" in read.out
        assert len(listed.json) > 1
        assert listed.json == perdure("runs", "list", "--json").json

    def test_say_what_was_moved_as_json(self, perdure, tmp_path):
        file = tmp_path / "work.jsonl"
        written = perdure("store", "export", str(file), "--json").json
        read = perdure(
            "store", "import", str(file), "--store", f"sqlite:///{tmp_path}/new.db", "--json"
        ).json

        assert written["bytes"] == file.stat().st_size
        assert written["counts"] == read["counts"]
        assert written["exported_at"] == read["exported_at"]
        assert read["counts"]["schedule"] == 1

    def test_import_into_a_store_in_use_is_refused(self, perdure, export):
        answer = perdure("store", "import", str(export))

        assert answer.exit_code == 1
        assert "is not empty: it has 'runs', 'events', 'waits', 'jobs'" in answer.error
        assert answer.error.count("\n") == 1

    def test_export_while_a_worker_is_at_work_is_refused_unless_live(
        self, perdure, source_url, tmp_path
    ):
        asyncio.run(register_worker(source_url, "bee"))

        refused = perdure("store", "export", str(tmp_path / "work.jsonl"))
        done = perdure("store", "export", str(tmp_path / "work.jsonl"), "--live")

        assert refused.exit_code == 1
        assert "worker 'bee' is live" in refused.error
        assert done.exit_code == 0, done

    @pytest.mark.parametrize(
        "arguments, code, reason",
        [
            (["store", "export"], 2, "FILE"),
            (["store", "export", "{folder}"], 2, "is a directory. Name a file in it"),
            (
                ["store", "export", "{folder}/no/such/work.jsonl"],
                2,
                "cannot be written: No such file",
            ),
            (
                ["store", "export", "{folder}/a.jsonl", "--store", "sqlite:///{folder}/none.db"],
                3,
                "no file",
            ),
            (
                ["store", "export", "{folder}/a.jsonl", "--store", "memory://x"],
                2,
                "in the memory of one process",
            ),
            (["store", "import", "{folder}/none.jsonl"], 2, "cannot be read: No such file"),
            (["store", "import", "{folder}/source.db"], 1, "is not an export of Perdure"),
        ],
    )
    def test_tell_what_is_wrong(self, perdure, tmp_path, arguments, code, reason):
        answer = perdure(*(each.replace("{folder}", str(tmp_path)) for each in arguments))

        assert answer.exit_code == code, answer
        assert reason in answer.error
