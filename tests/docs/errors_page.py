# ruff: noqa: E501
"""``docs/reference/errors.md``: every exception and every code, from their declarations.

``python -m tests.docs.errors_page`` prints the page; ``--write`` keeps it, after a code or an
exception was added or reworded.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from itertools import groupby

import perdure
from perdure import errors
from perdure.cli.output import exit_code_of
from perdure.diagnostics import Code, declared
from perdure.errors import PerdureError
from tests.docs.pages import ROOT
from tests.support.public_names import PUBLIC

PAGE = ROOT / "docs/reference/errors.md"

INTRODUCTION = """\
# Errors

<!-- Generated: python -m tests.docs.errors_page --write -->

Every exception is a `PerdureError` and can be imported from `perdure`, unless its row says otherwise. Match on the class, on its fields and on `error.code`; codes are stable, the wording of messages is not.

```python
from perdure import Client, RunNotFound

with Client("sqlite:///work.db") as client:
    try:
        client.runs.get("order-42")
    except RunNotFound as error:
        print(error.code, error.run_id)
        print(error)
```

```text output
run.not_found order-42
run 'order-42' not found. It may have been pruned
```

- `error.faults` lists each problem with its `code`, its `args` and `where` it is: a path such as `("nodes", "ask", "deadline")`. An error with several problems lists all of them.
- `error.actions()` lists operations that help, as data; the message ends with them as calls.
- On the command line an error is one line on stderr, and with `--json` one line of JSON with the same fields.
- Exceptions keep all their fields when they are pickled or copied.
- [`explain`](../howto/operating-runs.md), `perdure doctor` and `perdure verify` report findings with codes of the same list.
"""

CODES = """\
## Codes

`{field}` stands for an argument, a part in `[brackets]` is left out if it does not apply.
"""


def page() -> str:
    import_everything()
    parts = [INTRODUCTION, "## Exceptions\n", *exception_tables(), CODES, *code_tables()]
    return "\n".join(parts)


def exception_tables() -> Iterator[str]:
    for base in (
        errors.InvalidInput,
        errors.NotFound,
        errors.Conflict,
        errors.NotAllowed,
        errors.StoreError,
        errors.TaskError,
        PerdureError,
    ):
        node_types = [each for each in exceptions() if base_of(each) is base]
        exit_code = exit_code_of(base.__new__(base))
        title = "Other exceptions" if base is PerdureError else base.__name__
        yield f"### {title}\n"
        if base is not PerdureError:
            yield f"The command line exits with {exit_code.value}.\n"
        yield "| exception | is a | code | fields | raised when |\n|---|---|---|---|---|"
        yield "\n".join(map(exception_row, node_types)) + "\n"


def exception_row(found_type: type[PerdureError]) -> str:
    bases = ", ".join(f"`{each.__name__}`" for each in public_bases(found_type))
    fields = ", ".join(f"`{each}`" for each in found_type._fields)
    where = "" if found_type.__name__ in PUBLIC else " (in `perdure.errors`)"
    cells = (
        f"`{found_type.__name__}`",
        bases,
        f"`{found_type.CODE.name}`",
        fields,
        f"{summary(found_type)}{where}",
    )
    return f"| {' | '.join(map(cell, cells))} |"


def code_tables() -> Iterator[str]:
    own = {PerdureError.CODE.name, *(found_type.CODE.name for found_type in exceptions())}
    codes = sorted((each for each in declared().values() if shown(each, own)), key=lambda c: c.name)
    for area, group in groupby(codes, key=lambda code: code.name.partition(".")[0]):
        yield f"### `{area}`\n\n| code | message | what to do |\n|---|---|---|"
        rows = (f"| `{c.name}` | {cell(code_text(c.sentence))} | {cell(c.remedy)} |" for c in group)
        yield "\n".join(rows) + "\n"


def shown(code: Code, own: set[str]) -> bool:
    """Codes of tests and proofs are not the library's; a bare exception is in its table."""
    is_bare = code.name in own and code.sentence == "{message}"
    return not code.name.startswith(("test.", "evidence.")) and not is_bare


def exceptions() -> list[type[PerdureError]]:
    found = [each for each in vars(errors).values() if inspect.isclass(each)]
    return [
        each
        for each in found
        if issubclass(each, PerdureError)
        and each is not PerdureError
        and not each.__name__.startswith("_")
    ]


def base_of(found_type: type[PerdureError]) -> type[PerdureError]:
    """The one of the six bases under which an exception is listed."""
    groups = (
        errors.StoreError,
        errors.InvalidInput,
        errors.NotFound,
        errors.Conflict,
        errors.NotAllowed,
        errors.TaskError,
    )
    return next((each for each in groups if issubclass(found_type, each)), PerdureError)


def public_bases(found_type: type) -> list[type]:
    """The bases, where a private one stands for its own."""
    return [
        base
        for each in found_type.__bases__
        for base in (public_bases(each) if each.__name__.startswith("_") else [each])
    ]


def summary(found_type: type[PerdureError]) -> str:
    paragraph = (inspect.getdoc(found_type) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def code_text(sentence: str) -> str:
    return f"`{sentence.replace('`', '')}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def import_everything() -> None:
    """Codes are declared beside their use, so every module has to be loaded."""
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
