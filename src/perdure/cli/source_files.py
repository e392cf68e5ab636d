"""Which files of a project have changed, found by looking at their times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ENDINGS = (".py", ".yaml", ".yml", ".json")
"""Code, and flows in files."""
_LEFT_OUT = ("__pycache__", "node_modules", "site-packages")


class SourceFiles:
    """The files below a folder that workers are made of; asked again and again.

    Looking costs a few microseconds a file. What would tell of changes by itself differs by
    system, and is not worth a dependency here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = dict(_found(folder))

    def __len__(self) -> int:
        return len(self._seen)

    def changed(self) -> list[str]:
        """What came, changed or went since the last look, by paths within the folder."""
        now = dict(_found(self._folder))
        before, self._seen = self._seen, now
        paths = (path for path in {**before, **now} if before.get(path) != now.get(path))
        return sorted(os.path.relpath(path, self._folder) for path in paths)


def _found(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_left_out(place, each)]
        for name in files:
            if name.endswith(ENDINGS):
                path = os.path.join(place, name)
                try:
                    state = os.stat(path)
                except OSError:  # it went just now
                    continue
                yield path, (state.st_mtime_ns, state.st_size)


def _is_left_out(place: str, name: str) -> bool:
    """Hidden folders, those of tools, and virtual environments."""
    is_environment = os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
    return name.startswith(".") or name in _LEFT_OUT or is_environment
