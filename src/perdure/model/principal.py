"""Users and roles: how their names are compared, and for which deciders a person answers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

ROLE = "role:"
"""Starts a decider that is a role; every other decider is a user."""
RESERVED = frozenset({"poll"})
"""Names that logs use for Perdure itself."""

# What cannot be seen makes two names look the same: control and format characters, separators of
# lines, surrogates, fillers, variation selectors, and what Unicode reserves to be ignored.
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def normal_name(name: str) -> str:
    """The name as it is stored and compared: NFKC, trimmed, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).split())


def unseen_in(name: str) -> str:
    """The first character that cannot be seen, or an empty string."""
    for each in name:
        if unicodedata.category(each) in _UNSEEN or _BLANK.match(each):
            return each
    return ""


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
