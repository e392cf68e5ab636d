"""Files that are not whole, or of another version, are refused; the commands, as typed."""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import json
import os
import re
import stat
import tracemalloc
from collections.abc import Callable

import pytest

from perdure import AsyncClient, Flow
from perdure.errors import InvalidExport, InvalidInput
from perdure.model.ids import RunId
from perdure.store.opening import store_at
from perdure.store.postgres.session import PACKAGE as POSTGRES
from perdure.store.sql.migrations import load_migrations
from perdure.store.sqlite.transaction import PACKAGE as SQLITE
from perdure.transfer import export_store, import_store
from perdure.transfer.file import LINE_MAX_BYTES
from perdure.transfer.format import FORMAT, SCHEMA
from tests.cli.harness import Commands
from tests.support.refusal import refused
from tests.support.stores import opened
from tests.support.tasks import echo
from tests.transfer.registered import register_worker

Lines = list[bytes]


def changed_header(**fields: object) -> Callable[[Lines], Lines]:
    """Another first line, and the checksum that fits it: only what it says is wrong."""

    def change(lines: Lines) -> Lines:
        header = json.dumps(json.loads(lines[0]) | fields).encode() + b"\n"
        rows = [header, *lines[1:-1]]
        trailer = json.loads(lines[-1]) | {"sha256": hashlib.sha256(b"".join(rows)).hexdigest()}
        return [*rows, json.dumps(trailer).encode() + b"\n"]

    return change


def beginning(line: int, text: bytes) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines[:line], lines[line].replace(b"{", text, 1), *lines[line + 1 :]]


def row_changed(lines: Lines) -> Lines:
    return [line.replace(b'"priority":3', b'"priority":1') for line in lines]


def rows_swapped(lines: Lines) -> Lines:
    return [lines[0], lines[2], lines[1], *lines[3:]]


BROKEN: dict[str, Callable[[Lines], Lines]] = {
    "empty": lambda lines: [],
    "foreign": lambda lines: [b'{"row": "job"}\n'],
    "without its end": lambda lines: lines[:-1],
    "with its header alone": lambda lines: lines[:1],
    "cut within a line": lambda lines: [*lines[:3], lines[3][:50]],
    "without a row": lambda lines: [*lines[:2], *lines[3:]],
    "with a changed row": row_changed,
    "with swapped rows": rows_swapped,
    "with more after its end": lambda lines: [*lines, lines[1]],
    "with an unknown row": lambda lines: [lines[0], b'{"row": "cake"}\n', *lines[1:]],
    "with an unknown field": beginning(1, b'{"taste":1,'),
    # Finding 14: it raised RecursionError.
    "with a header that is nested too deeply": beginning(0, b'{"deep":' + b"[" * 100_000),
    # Finding 14: it raised OverflowError.
    "with an integer beyond 64 bits": lambda lines: [
        line.replace(b'"priority":3', b'"priority":%d' % 2**70) for line in lines
    ],
    "of a newer format": changed_header(format=FORMAT + 1, perdure="9.9"),
    "of an older format": changed_header(format=FORMAT - 1, schema=SCHEMA - 1),
    "of newer tables": changed_header(schema=SCHEMA + 1),
    "with other counts": changed_header(counts={"job": 1}),
}


class TestAnOlderExport:
    async def test_has_its_plain_titles_removed(self, tmp_path):
        """Finding 7: also one that PostgreSQL could not store."""
        old = f"sqlite:///{tmp_path}/old.db"
        flow = Flow("asks").approve("Refund?", name="review").build()
        async with AsyncClient(old) as client:
            await client.submit(flow, 1, id="a")
        export = tmp_path / "old.jsonl"
        await export_store(old, export)
        lines = export.read_bytes().splitlines(keepends=True)
        titled = [
            line.replace(b'"name":""', b'"name":"Refund\\u0000?"', 1) if b'"wait"' in line else line
            for line in lines
        ]
        assert titled != lines
        export.write_bytes(b"".join(changed_header(schema=5)(titled)))

        new = f"sqlite:///{tmp_path}/new.db"
        await import_store(new, export)

        async with AsyncClient(new) as client:
            [approval] = await client.approvals.list()
            async with opened(store_at(new)) as store:
                [wait] = await store.queries.run_waits("default", RunId("a"))
        assert (approval.title, wait.name) == ("Refund?", "")

    async def test_has_disabled_jobs_that_are_pruned(self, tmp_path):
        old, new = (f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new"))
        async with AsyncClient(old) as client:
            job = await client.enqueue(echo, 1)
            await client.jobs.disable(job.id)
        export = tmp_path / "old.jsonl"
        await export_store(old, export)
        lines = export.read_bytes().splitlines(keepends=True)
        undated = [re.sub(rb',"disabled_at":"[^"]*"', b"", line) for line in lines]
        assert undated != lines
        export.write_bytes(b"".join(changed_header(schema=12)(undated)))

        await import_store(new, export)

        async with AsyncClient(new) as client:
            assert await client.store.prune(status="disabled", older_than="0s") == 1


class TestFiles:
    @pytest.mark.parametrize("how", BROKEN)
    async def test_one_that_is_not_whole_is_refused(self, how, export, tmp_path):
        file = tmp_path / "broken.jsonl"
        file.write_bytes(b"".join(BROKEN[how](export.read_bytes().splitlines(keepends=True))))
        with pytest.raises(InvalidExport) as caught:
            await import_store(f"sqlite:///{tmp_path}/new.db", file)
        assert caught.value.path == str(file)
        assert not (tmp_path / "new.db").exists()

    @pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
    async def test_a_compressed_one_that_is_cut_off_is_refused(self, share, export, tmp_path):
        file = tmp_path / "cut.jsonl.gz"
        whole = gzip.compress(export.read_bytes())
        file.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(InvalidExport):
            await import_store(f"sqlite:///{tmp_path}/new.db", file)
        assert not (tmp_path / "new.db").exists()

    async def test_is_known_to_be_compressed_by_what_is_in_it(self, export, tmp_path):
        file = tmp_path / "renamed"
        file.write_bytes(gzip.compress(export.read_bytes()))
        done = await import_store(f"sqlite:///{tmp_path}/new.db", file)
        assert done.counts == json.loads(export.read_bytes().splitlines()[0])["counts"]

    @pytest.mark.parametrize("place", ["header", "row", "end"])
    async def test_a_line_that_is_too_long_is_refused_before_it_is_read(
        self, place, export, tmp_path
    ):
        """Finding 8: 583 kB, compressed, took 1.2 GB of memory."""
        lines = export.read_bytes().splitlines(keepends=True)
        start = {
            "header": b"",
            "row": lines[0] + b'{"row":"job","id":"',
            "end": b"".join(lines[:-1]),
        }[place]
        file = tmp_path / "bomb.jsonl.gz"
        with gzip.open(file, "wb", compresslevel=9) as bomb:
            bomb.write(start)
            for _ in range(256):
                bomb.write(b" " * 2**20)
            bomb.write(b"\n")

        tracemalloc.start()
        try:
            with pytest.raises(InvalidExport):
                await import_store(f"sqlite:///{tmp_path}/new.db", file)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert peak < 4 * LINE_MAX_BYTES
        assert not (tmp_path / "new.db").exists()

    async def test_what_cannot_be_read_is_named(self, tmp_path):
        with refused("file.unreadable", reason="No such file or directory"):
            await import_store(f"sqlite:///{tmp_path}/new.db", tmp_path / "missing.jsonl")
        with refused("file.unreadable", reason="Is a directory"):
            await import_store(f"sqlite:///{tmp_path}/new.db", tmp_path)

    async def test_an_export_is_for_its_owner_alone(self, source_url, tmp_path):
        await export_store(source_url, tmp_path / "work.jsonl")
        assert stat.S_IMODE(os.stat(tmp_path / "work.jsonl").st_mode) == 0o600

    async def test_an_export_writes_to_no_file_that_was_there(self, source_url, tmp_path):
        """Finding 11: neither a file nor a link planted at a name that can be guessed."""
        (tmp_path / "victim").write_bytes(b"precious")
        (tmp_path / "work.jsonl.part").symlink_to(tmp_path / "victim")
        (tmp_path / ".work.jsonl.part").touch(0o666)

        await export_store(source_url, tmp_path / "work.jsonl")

        assert (tmp_path / "victim").read_bytes() == b"precious"
        assert {each.name for each in tmp_path.iterdir()} >= {"victim", "work.jsonl"}
        assert stat.S_IMODE(os.stat(tmp_path / "work.jsonl").st_mode) == 0o600
        assert not list(tmp_path.glob(".work.jsonl.?*.part"))

    async def test_the_same_contents_are_the_same_rows(self, source_url, export, tmp_path):
        await export_store(source_url, tmp_path / "again.jsonl")
        again = (tmp_path / "again.jsonl").read_bytes().splitlines()
        assert again[1:-1] == export.read_bytes().splitlines()[1:-1]

    async def test_an_export_does_not_take_the_place_of_a_file(self, source_url, tmp_path):
        (tmp_path / "mine.txt").write_text("mine")
        with refused("file.exists", InvalidInput):
            await export_store(source_url, tmp_path / "mine.txt")
        assert (tmp_path / "mine.txt").read_text() == "mine"

    @pytest.mark.parametrize("how", ["file", "link"])
    async def test_an_export_replaces_nothing_that_came_meanwhile(self, source_url, tmp_path, how):
        """Finding 11: what was created after the export had started was replaced."""
        made = tmp_path / "work.jsonl"

        def create(done: int, of: int) -> None:
            if how == "link" and not made.is_symlink():
                made.symlink_to(tmp_path / "nowhere")
            elif how == "file":
                made.write_text("mine")

        with refused("file.exists", InvalidInput):
            await export_store(source_url, made, on_progress=create)

        assert made.is_symlink() if how == "link" else made.read_text() == "mine"
        assert [each.name for each in tmp_path.glob("*work.jsonl*")] == ["work.jsonl"]

    async def test_an_export_needs_no_hard_links(self, source_url, tmp_path, monkeypatch):
        """Finding 11: some file systems have none."""

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        await export_store(source_url, tmp_path / "work.jsonl")
        assert [each.name for each in tmp_path.glob("*work.jsonl*")] == ["work.jsonl"]

    async def test_an_export_that_fails_leaves_no_file(self, source_url, tmp_path):
        def stop(done: int, of: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await export_store(source_url, tmp_path / "work.jsonl", on_progress=stop)
        assert list(tmp_path.glob("work*")) == []

    async def test_a_store_in_memory_cannot_be_moved(self, tmp_path):
        with refused("store.not_movable", InvalidInput):
            await export_store("memory://here", tmp_path / "work.jsonl")

    def test_the_version_of_the_tables_is_that_of_the_latest_migration(self):
        for package in (SQLITE, POSTGRES):
            assert load_migrations(package, {})[-1].version == SCHEMA


# ``perdure store export`` and ``perdure store import``, as typed.


@pytest.fixture
def perdure(source_url: str) -> Commands:
    return Commands(source_url)


class TestCommands:
    def test_import_longer_lines_if_allowed(self, perdure, export, tmp_path):
        """Finding 8: what was exported can be imported, whatever the size of its rows."""
        longest = max(map(len, export.read_bytes().splitlines(keepends=True)))
        url = f"sqlite:///{tmp_path}/new.db"
        for most, is_imported in ((longest - 1, False), (longest, True)):
            options = ("--store", url, "--line-max-bytes", str(most))
            answer = perdure("store", "import", str(export), *options)
            assert (answer.exit_code == 0) is is_imported, answer

    def test_move_a_store(self, perdure, tmp_path, bare_postgres_url):
        file = tmp_path / "work.jsonl.gz"
        written = perdure("store", "export", str(file))
        read = perdure("store", "import", str(file), "--store", bare_postgres_url)
        listed = perdure("runs", "list", "--json", "--store", bare_postgres_url)

        assert (written.exit_code, read.exit_code) == (0, 0), (written, read)
        assert f"perdure store import {file} --store" in written.out
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

    def test_export_while_a_worker_is_at_work_is_refused_unless_live(
        self, perdure, source_url, tmp_path
    ):
        asyncio.run(register_worker(source_url, "bee"))
        export = ("store", "export", str(tmp_path / "work.jsonl"))
        perdure.refused("store.in_use", *export, exit_code=1, reason="worker 'bee' is live")
        assert perdure("store", "export", str(tmp_path / "work.jsonl"), "--live").exit_code == 0

    @pytest.mark.parametrize(
        "command, file, exit_code, code, options",
        [
            ("export", "", 2, "file.is_directory", []),
            ("export", "no/a.jsonl", 2, "file.unwritable", []),
            ("export", "a.jsonl", 3, "store.unreachable", ["--store", "sqlite:///{folder}/x.db"]),
            ("export", "a.jsonl", 2, "cli.store_in_memory", ["--store", "memory://x"]),
            ("import", "none.jsonl", 2, "file.unreadable", []),
            ("import", "source.db", 1, "store.invalid_export", []),
            ("import", "{export}", 1, "store.not_empty", []),  # into the store that it is of
        ],
    )
    def test_name_what_they_cannot_use(
        self, perdure, export, tmp_path, command, file, exit_code, code, options
    ):
        path = str(tmp_path / file.format(export=export))
        words = [path, *(each.format(folder=tmp_path) for each in options)]
        named = {"path": path} if code.startswith(("file.", "store.invalid")) else {}
        perdure.refused(code, "store", command, *words, exit_code=exit_code, **named)
