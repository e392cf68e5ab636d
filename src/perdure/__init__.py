"""Durable jobs and flows for Python: SQLite to start with, PostgreSQL to share."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from perdure.public import *  # noqa: F403
    from perdure.public import __all__ as __all__
else:  # not seen by checkers of types, for whom a name that is not there must be a mistake

    def __getattr__(name: str) -> Any:
        """Load the library once one of its names is asked for: help in a shell asks for none."""
        if find_spec(f"{__name__}.{name}") is not None:
            # A part, which others import while the library is being loaded.
            return import_module(f"{__name__}.{name}")
        public = import_module("perdure.public")
        names = globals()
        names["__all__"] = public.__all__
        names.update({each: getattr(public, each) for each in public.__all__})
        try:
            return names[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
