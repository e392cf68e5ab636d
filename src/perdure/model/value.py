"""The base of every model value: frozen, keyword-only, compared by content, cheap to make."""

from __future__ import annotations

from typing import Any, dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _ValueMeta(msgspec.StructMeta):
    """Gives every subclass the options of :class:`Value`, and tells type checkers so."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _ValueMeta:
        options.setdefault("frozen", True)
        options.setdefault("kw_only", True)
        # Frozen values cannot come to contain themselves, so the collector need not look at them.
        options.setdefault("gc", False)
        made: _ValueMeta = super().__new__(mcs, name, bases, namespace, **options)
        return made


class Value(msgspec.Struct, metaclass=_ValueMeta):
    """An immutable value. A msgspec struct, because making a frozen dataclass costs far more."""
