"""The public names, which ``perdure`` lists at run time only."""

from __future__ import annotations

from importlib import import_module

PUBLIC: list[str] = import_module("perdure").__all__
