"""Users and roles: how their names are compared, and for which deciders a person answers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

ROLE = "role:"
"""Starts a decider that is a role; every other decider is a user."""
RESERVED = frozenset({"poll"})
"""Names that logs use for Perdure itself."""


def normal_name(name: str) -> str:
    """The name as it is stored and compared: NFKC, trimmed, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def role_of(decider: str) -> str | None:
    """The role that a decider is; None if it is a user."""
    name = normal_name(decider)
    return name.removeprefix(ROLE).strip() if name.startswith(ROLE) else None


def stands_for(
    deciders: Iterable[str], by: str | None, roles: Iterable[str] = ()
) -> tuple[str, ...]:
    """The deciders that a person answers for: the user of that name, and the roles they have."""
    who = None if by is None else normal_name(by)
    has = {normal_name(each) for each in roles}
    found = []
    for each in dict.fromkeys(deciders):
        role = role_of(each)
        if (who is not None and normal_name(each) == who) if role is None else role in has:
            found.append(each)
    return tuple(found)
