"""Durable jobs and flows for Python, on SQLite or PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from perdure.public import *  # noqa: F403
else:  # hidden from type checkers: with a module `__getattr__`, they would accept any name

    def __getattr__(name: str) -> Any:
        """Load the library on first use: ``perdure --help`` needs none of it."""
        if find_spec(f"{__name__}.{name}") is not None:
            # A submodule, which may be requested while the library is being loaded.
            return import_module(f"{__name__}.{name}")
        loaded = vars(import_module("perdure.public")).items()
        public = {each: value for each, value in loaded if not each.startswith("_")}
        names = globals()
        names.update(public, __all__=sorted(public))
        try:
            return names[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
