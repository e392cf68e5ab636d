"""The base of all model values: frozen, keyword-only, compared by content, cheap to create."""

from __future__ import annotations

from typing import Any, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _ValueMeta(msgspec.StructMeta):
    """Gives every subclass the options of :class:`Value`, also for type checkers."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _ValueMeta:
        options.setdefault("frozen", True)
        options.setdefault("kw_only", True)
        # Frozen values cannot form reference cycles, so the garbage collector can ignore them.
        options.setdefault("gc", False)
        made: _ValueMeta = super().__new__(mcs, name, bases, namespace, **options)
        return made


class Value(msgspec.Struct, metaclass=_ValueMeta):
    """An immutable value. A msgspec struct: frozen dataclasses are much slower to create."""
