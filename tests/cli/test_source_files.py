"""Which files of a project have changed."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.cli.commands.dev import SourceFiles


def write(folder: Path, name: str, text: str = "") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_tells_what_came_changed_and_went_once(tmp_path):
    changed, gone = write(tmp_path, "a.py"), write(tmp_path, "flows/b.yaml")
    write(tmp_path, "same.py")
    files = SourceFiles(tmp_path)
    assert files.changed() == []

    write(tmp_path, "new/c.yml")
    changed.write_text("longer")
    gone.unlink()

    assert files.changed() == ["a.py", "flows/b.yaml", "new/c.yml"]
    assert files.changed() == []
    assert len(files) == 3


def test_a_later_time_is_a_change_though_the_size_is_the_same(tmp_path):
    file = write(tmp_path, "a.py", "x = 1")
    files = SourceFiles(tmp_path)
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))

    assert files.changed() == ["a.py"]


def test_leaves_out_what_is_no_source(tmp_path):
    files = SourceFiles(tmp_path)
    write(tmp_path, "perdure.db")
    write(tmp_path, "notes.txt")
    write(tmp_path, ".git/hook.py")
    write(tmp_path, "__pycache__/a.py")
    write(tmp_path, "env/pyvenv.cfg")
    write(tmp_path, "env/lib/a.py")

    assert files.changed() == []
