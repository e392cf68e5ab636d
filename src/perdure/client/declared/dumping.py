"""Plain data as YAML for people: in blocks, and with no text that a reader takes for a number."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from perdure.client.declared.scalars import BOOLEANS, FLOATS, INTEGERS, NULLS

WIDTH = 100
_UNPRINTABLE = re.compile(
    "[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What some reader takes for the end of a line, or for nothing, unless it is escaped."""
_NO_TEXT = "tag:yaml.org,2002:other"


def dumped(data: Any) -> str:
    import yaml

    return yaml.dump(
        data,
        Dumper=_dumper(),
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=WIDTH,
    )


@cache
def _dumper() -> type[Any]:
    import yaml

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)  # items stand further in than their key

        def ignore_aliases(self, data: Any) -> bool:
            return True

    # Texts that YAML 1.1 takes for something else are quoted anyway; these are of YAML 1.2.
    for pattern in (NULLS, BOOLEANS, INTEGERS, FLOATS):
        whole = re.compile(rf"(?:{pattern.pattern})\Z")
        Dumper.add_implicit_resolver(_NO_TEXT, whole, None)
    Dumper.add_representer(str, _text)
    return Dumper


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text.strip("\n") else None
    if _UNPRINTABLE.search(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
