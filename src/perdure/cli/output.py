"""When what a command prints cannot be written: one line and an exit code, no traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.cli.exits import ExitCode, tell

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def output_told() -> Iterator[None]:
    """Write out all that was printed, and say so if there is no room for it."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        _let_go()
        sys.exit(ExitCode.REFUSED)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _let_go()
        tell(f"cannot write: {error.strerror}. Free some room, or write elsewhere")
        sys.exit(ExitCode.REFUSED)


def _let_go() -> None:
    """Python writes out what is left when it ends, and would complain once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
