"""Writing an export: under another name until it is whole."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from perdure.errors import InvalidInput
from perdure.store.contract.transfer import TransferRow
from perdure.transfer.format import (
    COMPRESSED_SUFFIX,
    EXISTS,
    IS_DIRECTORY,
    UNWRITABLE,
    Header,
    Trailer,
    encode,
    name_of,
)

_COMPRESSION = 6
_PART_SUFFIX = ".part"


class ExportWriter:
    """Adds rows to an open file, and the last line at its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self._counts: Counter[str] = Counter()

    def begin(self, header: Header) -> None:
        self._write(encode(header) + b"\n")

    def add(self, batch: Sequence[TransferRow]) -> None:
        self._write(b"".join(encode(each) + b"\n" for each in batch))
        self._counts[name_of(type(batch[0]))] += len(batch)

    def end(self) -> None:
        trailer = Trailer(counts=dict(self._counts), sha256=self._sum.hexdigest())
        self._file.write(encode(trailer) + b"\n")

    def _write(self, lines: bytes) -> None:
        self._file.write(lines)
        self._sum.update(lines)


@contextmanager
def written(path: Path) -> Iterator[ExportWriter]:
    """A new file, there only once the block is done; nobody else may read what is in it."""
    _check_free(path)
    part = path.with_name(path.name + _PART_SUFFIX)
    try:
        with open(part, "wb", opener=_opened_privately) as raw:
            with _compressed(raw, path) as file:
                writer = ExportWriter(file)
                yield writer
                writer.end()
            raw.flush()
            os.fsync(raw.fileno())
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        fault = UNWRITABLE.fault(path=str(path), reason=error.strerror or str(error))
        raise InvalidInput(fault) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _check_free(path: Path) -> None:
    if path.is_dir():
        raise InvalidInput(IS_DIRECTORY.fault(path=str(path), example="work.jsonl.gz"))
    if path.exists():
        raise InvalidInput(EXISTS.fault(path=str(path)))


def _opened_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _compressed(raw: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    if path.suffix != COMPRESSED_SUFFIX:
        yield raw
        return
    # Without a time in it, so that the same contents are the same file.
    with gzip.GzipFile(
        filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0
    ) as file:
        yield cast("BinaryIO", file)
