# ruff: noqa: E501
"""``docs/reference/operations.md``: every operation with its name on every interface.

``python -m tests.docs.operations_page`` prints the page; ``--write`` keeps it, after an operation
was added or changed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from perdure.cli.app import SUMMARIES
from perdure.operations.catalog import GROUPS, OPERATIONS
from perdure.operations.operation import Operation
from tests.docs.cli_page import usage
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/reference/operations.md"

INTRODUCTION = """\
# Operations

<!-- Generated: python -m tests.docs.operations_page --write -->

Everything that can be asked of a store has one name. `runs.cancel` is `client.runs.cancel(id)` in Python and `perdure runs cancel ID` on the command line. The HTTP API and the MCP server, which do not exist yet, will use the names in the last two columns.

The async client has the same calls, to be awaited; operations that stream yield their results: `for event in client.runs.watch(id)`. Lists return a page: a sequence of items, and in `next` the `cursor` of the next page, which stays valid when items are pruned. `jobs.enqueue` and `runs.submit` are also `client.enqueue(task, *args)` and `client.submit(flow, input)`, which return [handles](settings.md#handles); `client.run(flow, input)` submits a run and waits for its result.

The role is what a caller will need over HTTP and MCP; a client that opens the store itself may do everything. Some values of an argument need another role than the operation itself.

| role | may |
|---|---|
| viewer | read jobs, runs, approvals, waits, schedules, queues, workers and flows |
| submitter | enqueue jobs and submit runs; send signals and reports to runs |
| decider | decide on approvals |
| operator | pause, cancel, retry, replace and otherwise change what others submitted; pause queues; save and change schedules; check the health of a store |
| admin | prune a store |

`perdure store export` and `import` are not operations: they need the database and the file on one machine, and anyone who can open the database may use them.

Who the caller is, is not an argument over HTTP and MCP: what is listed as *from the caller* is filled in with the caller's name and roles.

In a path, an id or a name is one percent-encoded segment: the child run `order-42/pack` is `/runs/order-42%2Fpack`. What is asked of a whole group comes after a colon, so that no id can be mistaken for it: `GET /runs:count`.
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *(line for name in GROUPS for line in section(name))])


def section(group: str) -> Iterator[str]:
    yield f"## {group}"
    yield ""
    yield "| operation | Python | command line | role | | HTTP | MCP |"
    yield "|---|---|---|---|---|---|---|"
    for operation in OPERATIONS.values():
        if operation.group == group:
            yield row(operation)
    yield ""


def row(operation: Operation) -> str:
    parameters = ", ".join(map(parameter, operation.parameters.values()))
    node_types = [
        word
        for word, holds in (
            ("writes", operation.writes),
            ("streams", operation.streams),
            ("one namespace", operation.one_namespace),
        )
        if holds
    ]
    if operation.principal:
        node_types.append(
            f"{' and '.join(f'`{each}`' for each in operation.principal)} from the caller"
        )
    cells = (
        f"`{operation.name}`<br>{operation.summary.replace('``', '`')}",
        f"`{operation.verb}({parameters})`",
        f"`{usage(operation.name)}`" if operation.name in SUMMARIES else "",
        role(operation),
        ", ".join(node_types),
        f"`{operation.route}`",
        f"`{operation.tool}`",
    )
    return f"| {' | '.join(cells)} |"


def role(operation: Operation) -> str:
    stricter = [
        f"{needed.value} with `{path}={value!r}`"
        for path, roles in operation.role_by_value.items()
        for value, needed in roles.items()
    ]
    return "; ".join([operation.role.value, *stricter])


def parameter(each: inspect.Parameter) -> str:
    if each.default is each.empty:
        return each.name
    return f"{each.name}={'...' if each.name == 'default' else repr(each.default)}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
