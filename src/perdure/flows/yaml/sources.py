"""Where flows as data come from: files, texts, and data of a program."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from perdure.errors import InvalidFlow, InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.flows.yaml.library import AnyKinds, Library, Tasks
from perdure.flows.yaml.load import compiled
from perdure.flows.yaml.parse import (
    TEXT_MAX,
    Document,
    FlowFault,
    invalid,
    plain_document,
    read_json,
    read_yaml,
)

_BYTES_MAX = 4 * TEXT_MAX
_FILES_DEEP_MAX = 50


def load_flow(
    path: str | os.PathLike[str],
    *,
    tasks: Tasks = (),
    kinds: AnyKinds = (),
    flows: Iterable[BuiltFlow] = (),
) -> BuiltFlow:
    """The flow that a YAML or JSON file tells.

    ``tasks`` are those that it may name, or flows whose tasks it may; ``kinds`` are yours, besides
    those that come with it; ``flows`` are those that it may run as children. ``InvalidFlow`` has
    everything that is wrong, each fault with its line.
    """
    return load_with(path, Library(tasks, kinds, flows))


def flow_from_text(
    text: str, *, tasks: Tasks = (), kinds: AnyKinds = (), flows: Iterable[BuiltFlow] = ()
) -> BuiltFlow:
    """The flow that YAML or JSON in a text tells; otherwise as :func:`load_flow`."""
    if not isinstance(text, str):
        raise InvalidInput(f"a flow as YAML is a text, not {type(text).__name__}")
    return compiled(read_yaml(text), Library(tasks, kinds, flows))


def flow_from_dict(
    data: Any, *, tasks: Tasks = (), kinds: AnyKinds = (), flows: Iterable[BuiltFlow] = ()
) -> BuiltFlow:
    """The flow that plain data tells; otherwise as :func:`load_flow`."""
    return compiled(plain_document(data), Library(tasks, kinds, flows))


def load_with(path: str | os.PathLike[str], library: Library) -> BuiltFlow:
    try:
        file = Path(path)
    except TypeError as error:
        raise InvalidInput(f"{path!r} is not the path of a file") from error
    return _Files(file, library).flow(file, ())


class _Files:
    """A file and those that it names, each read once."""

    def __init__(self, file: Path, library: Library) -> None:
        self._folder = _resolved(file).parent
        self._library = library
        self._flows: dict[Path, BuiltFlow] = {}

    def flow(self, file: Path, parents: tuple[Path, ...]) -> BuiltFlow:
        resolved = _resolved(file)
        if resolved not in self._flows:
            document = read_document(file)
            child = partial(self._child, file, (*parents, resolved))
            self._flows[resolved] = compiled(document, self._library, child)
        return self._flows[resolved]

    def _child(self, parent: Path, parents: tuple[Path, ...], name: str) -> BuiltFlow:
        file = parent.parent / name
        resolved = _resolved(file)
        if not resolved.is_relative_to(self._folder):
            raise InvalidInput(f"the file {name!r} is outside of the folder of this flow")
        if resolved in parents:
            chain = " → ".join(each.name for each in (*parents, resolved))
            raise InvalidInput(f"flows cannot run each other in a circle: {chain}")
        if len(parents) >= _FILES_DEEP_MAX:
            raise InvalidInput(f"files name each other more than {_FILES_DEEP_MAX} deep")
        return self.flow(file, parents)


def _resolved(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a circle of links is a RuntimeError
        raise _unreadable(str(file), error) from None


def _unreadable(name: str, error: Exception) -> InvalidFlow:
    reason = getattr(error, "strerror", None) or str(error)
    return invalid(name, [FlowFault(f"cannot be read: {reason}", file=name, mark=None)])


def read_document(file: Path) -> Document:
    name = str(file)
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(name, error) from None
    if len(content) > _BYTES_MAX:
        message = f"it has more than {TEXT_MAX} characters"
        raise invalid(name, [FlowFault(message, file=name, mark=None)])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"it is not UTF-8: {error.reason} at byte {error.start}"
        raise invalid(name, [FlowFault(message, file=name, mark=None)]) from None
    return read_json(text, name) if file.suffix == ".json" else read_yaml(text, name)
