"""Logs of the command line's processes, as text or JSON lines on stderr.

They go through Python's logging, so that logs of tasks and libraries have the same format. Child
processes for tasks get the setup of their parent: this module imports little, because each import
delays their first body.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from perdure.diagnostics import safe_repr
from perdure.model.text import INDENT, visible, visible_block, visible_json
from perdure.model.value import Value

_log = logging.getLogger("perdure.cli")
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}


class LogSetup(Value):
    """How a process logs."""

    level: int | None = None
    """Log everything at or above this level; None for only what Python prints by itself, such as
    warnings without a log handler."""
    as_json: bool = False

    def apply(self, stream: TextIO | None = None) -> None:
        """Set up the logs of this process, and of the child processes that it starts from now on.

        They go to stderr, unless there is another stream.
        """
        global _current
        _current = self
        if self.level is None:
            if logging.lastResort is not None:
                logging.lastResort.setFormatter(PlainLines(is_coloured=False))
            return
        stream = sys.stderr if stream is None else stream
        handler = logging.StreamHandler(stream)
        is_coloured = stream.isatty() and not os.environ.get("NO_COLOR")
        handler.setFormatter(JsonLines() if self.as_json else PlainLines(is_coloured=is_coloured))
        # Debug logs of other libraries would drown out those about jobs.
        logging.basicConfig(level=max(self.level, logging.INFO), handlers=[handler], force=True)
        logging.getLogger("perdure").setLevel(self.level)

    def apply_in_child(self) -> None:
        self.apply()
        threading.excepthook = log_thread_error
        sys.unraisablehook = log_unraisable
        warnings.showwarning = log_warning


_current: LogSetup | None = None


def current_setup() -> LogSetup | None:
    """The setup of this process; None if its program has its own logging."""
    return _current


# Hooks for what Python would print unescaped


def log_unexpected(
    found_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Log an error that ends the process. A ``sys.excepthook``."""
    _format_last_resort()
    _log.critical("unexpected error", exc_info=(found_type, error, trace))


def log_thread_error(found: threading.ExceptHookArgs) -> None:
    """Log an error that ended a thread. A ``threading.excepthook``."""
    if issubclass(found.exc_type, SystemExit):
        return
    _format_last_resort()
    name = None if found.thread is None else found.thread.name
    _log.error(
        "unhandled error in a thread",
        exc_info=_exc_info(found),
        extra={"fields": {"thread": name}},
    )


def log_unraisable(found: sys.UnraisableHookArgs) -> None:
    """Log an error that cannot be raised, such as one of ``__del__``. A ``sys.unraisablehook``."""
    _format_last_resort()
    _log.error(
        "ignored error",
        exc_info=_exc_info(found),
        extra={"fields": {"object": safe_repr(found.object)}},
    )


def _exc_info(found: threading.ExceptHookArgs | sys.UnraisableHookArgs) -> Any:
    return found.exc_type, found.exc_value, found.exc_traceback  # the value may be None


def log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a warning. A ``warnings.showwarning``."""
    _format_last_resort()
    text = warnings.formatwarning(message, category, filename, lineno, line)
    if file is None:
        logging.getLogger("py.warnings").warning("%s", text.rstrip("\n"))
    else:
        file.write(text)


def _format_last_resort() -> None:
    if _current is None:
        LogSetup().apply()


# Formats


class PlainLines(logging.Formatter):
    """``12:00:01 info    job completed  job=… task=… attempt=1 seconds=0.012``"""

    def __init__(self, *, is_coloured: bool) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        level = visible(record.levelname.lower())
        pairs = " ".join(f"{visible(name)}={_shown(value)}" for name, value in _fields(record))
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        said = visible_block(_message(record))  # a library may log several lines
        line = f"{at:%H:%M:%S} {self._painted(f'{level:7}', level)} {said}"
        line = f"{line}  {pairs}" if pairs else line
        if record.exc_info:
            line += f"\n{INDENT}{visible_block(self.formatException(record.exc_info))}"
        return line

    def _painted(self, text: str, level: str) -> str:
        return f"\x1b[{_COLOURS.get(level, 0)}m{text}\x1b[0m" if self._is_coloured else text


class JsonLines(logging.Formatter):
    """One JSON object a line: ``at``, ``level``, ``message``, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **dict(_fields(record)),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(line, default=str, ensure_ascii=False))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # logging would print a traceback, unescaped
        said, args = safe_repr(record.msg), safe_repr(record.args)
        return f"invalid log call at {record.pathname}:{record.lineno}: {said} with {args}"


def _fields(record: logging.LogRecord) -> list[tuple[str, Any]]:
    """The fields of our own records, and what a task's program passes under the same name."""
    found: Any = getattr(record, "fields", {})
    fields = found if isinstance(found, Mapping) else {"fields": found}
    return [(str(name), value) for name, value in fields.items()]


def _shown(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    # Quoted if it could be mistaken for several fields; as JSON, for unambiguous escapes.
    is_plain = text and " " not in text and '"' not in text
    return visible(text if is_plain else json.dumps(text, ensure_ascii=False))
