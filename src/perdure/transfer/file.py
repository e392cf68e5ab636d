"""Writes and reads export files; refuses incomplete ones."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, cast

import msgspec
from msgspec.structs import astuple

from perdure.errors import InvalidExport, InvalidInput
from perdure.store.contract.transfer import TransferRow
from perdure.transfer.format import (
    COMPRESSED_SUFFIX,
    EXISTS,
    FORMAT,
    IS_DIRECTORY,
    SCHEMA,
    UNREADABLE,
    UNWRITABLE,
    Header,
    Trailer,
    decode_row,
    encode,
    name_of,
)

BATCH_ROWS_MAX = 1000
BATCH_BYTES_MAX = 8 * 1024 * 1024
LINE_MAX_BYTES = 16 * 1024 * 1024
"""A longer line, decompressed, is refused: decoding one takes many times its size in memory."""
_GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN = "it is not an export of Perdure"
_decode_header = msgspec.json.Decoder(Header).decode


class ExportFile:
    """An export file; every read starts at its beginning."""

    def __init__(self, path: Path, line_max_bytes: int = LINE_MAX_BYTES) -> None:
        self._path = path
        self._line_max_bytes = line_max_bytes

    def verified(self) -> Header:
        """Read the whole file; raises ``InvalidExport`` unless every line is intact."""
        for _ in self.batches():
            pass
        with self._opened() as file:
            return self._header(next(self._lines(file), b""))

    def batches(self) -> Iterator[Sequence[TransferRow]]:
        """The rows, in batches of one type. Raises if the checksum at the end does not match."""
        with self._opened() as file:
            try:
                yield from self._batches(file)
            except (EOFError, OSError, zlib.error) as error:
                raise self._invalid(f"it is cut off or damaged: {error}") from error

    def _batches(self, file: BinaryIO) -> Iterator[Sequence[TransferRow]]:
        lines = self._lines(file)
        first = next(lines, b"")
        header = self._header(first)
        sum, counts = hashlib.sha256(first), Counter[str]()
        batch: list[TransferRow] = []
        size = 0
        for number, line in enumerate(lines, start=2):
            row = self._row(line, number)
            if isinstance(row, Trailer):
                self._check_end(row, header, counts, sum.hexdigest(), file.read(1))
                break
            is_full = len(batch) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX
            if batch and (is_full or type(row) is not type(batch[0])):
                yield batch
                batch, size = [], 0
            sum.update(line)
            counts[name_of(type(row))] += 1
            batch.append(row)
            size += len(line)
        else:
            raise self._invalid("it is cut off: its last line is missing")
        if batch:
            yield batch

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        most = self._line_max_bytes
        number = 0
        while line := file.readline(most + 1):
            number += 1
            if len(line) > most:
                raise self._invalid(
                    f"line {number} has more than {most} bytes",
                    "If you trust the file, allow longer lines with line_max_bytes",
                )
            yield line

    def _header(self, line: bytes) -> Header:
        try:
            header = _decode_header(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._invalid(_FOREIGN, "Name a file that was exported from a store") from error
        if header.format > FORMAT or header.schema > SCHEMA:
            raise self._invalid(
                f"Perdure {header.perdure} wrote it, in format {header.format} with tables of "
                f"version {header.schema}; this one knows format {FORMAT} and tables {SCHEMA}",
                "Upgrade Perdure here",
            )
        if header.format < FORMAT:
            raise self._invalid(
                f"it is an export of format {header.format}; this version reads format {FORMAT}",
                "Open the original store with this version, which upgrades it, and export it again",
            )
        return header

    def _row(self, line: bytes, number: int) -> TransferRow | Trailer:
        try:
            row: TransferRow | Trailer = decode_row(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._invalid(f"line {number} is cut off or damaged: {error}") from error
        for value in astuple(row):
            if type(value) is int and not -(2**63) <= value < 2**63:
                raise self._invalid(f"line {number} has an integer that no column can store")
        return row

    def _check_end(
        self, trailer: Trailer, header: Header, counts: Counter[str], sum: str, rest: bytes
    ) -> None:
        if rest:
            raise self._invalid("there is more after its last line")
        if not dict(counts) == dict(trailer.counts) == dict(header.counts):
            raise self._invalid("it does not have as many rows as it says")
        if sum != trailer.sha256:
            raise self._invalid("it was changed since it was written: its checksum is another")

    def _invalid(self, reason: str, advice: str = "Export the store again") -> InvalidExport:
        return InvalidExport(path=str(self._path), reason=reason, advice=advice)

    def _opened(self) -> BinaryIO:
        try:
            with open(self._path, "rb") as file:
                is_compressed = file.read(2) == _GZIP_MAGIC
            opened = gzip.open if is_compressed else open
            return cast("BinaryIO", opened(self._path, "rb"))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InvalidInput(UNREADABLE.fault(path=str(self._path), reason=reason)) from error


_COMPRESSION = 6
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class ExportWriter:
    """Appends rows to an open file, and the last line at the end."""

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
    """Write a new file, which appears only when the block completes; readable only by its owner."""
    if path.is_dir():
        raise InvalidInput(IS_DIRECTORY.fault(path=str(path), example="work.jsonl.gz"))
    if path.exists():
        raise InvalidInput(EXISTS.fault(path=str(path)))
    # An unpredictable name, and never an existing file or link.
    part = path.with_name(f".{path.name}.{token_hex(8)}.part")
    try:
        with os.fdopen(os.open(part, _NEW_FILE, 0o600), "wb") as raw:
            with _compressed(raw, path) as file:
                writer = ExportWriter(file)
                yield writer
                writer.end()
            raw.flush()
            os.fsync(raw.fileno())
        _move_to_new(part, path)
    except FileExistsError as error:
        part.unlink(missing_ok=True)
        raise InvalidInput(EXISTS.fault(path=str(path))) from error
    except OSError as error:
        part.unlink(missing_ok=True)
        fault = UNWRITABLE.fault(path=str(path), reason=error.strerror or str(error))
        raise InvalidInput(fault) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _move_to_new(part: Path, path: Path) -> None:
    """Rename a file; raises ``FileExistsError`` if one was created there meanwhile."""
    try:
        path.hardlink_to(part)  # unlike a rename, it replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        part.rename(path)
    else:
        part.unlink()


@contextmanager
def _compressed(raw: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    if path.suffix != COMPRESSED_SUFFIX:
        yield raw
        return
    # Without a timestamp, so that the same contents yield the same file.
    with gzip.GzipFile(
        filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0
    ) as file:
        yield cast("BinaryIO", file)
