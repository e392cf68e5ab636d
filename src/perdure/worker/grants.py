"""Grants: which secrets a flow that was loaded as data may use, and where it may send them.

A flow built in Python is code, which the operator trusts, and uses secrets like any other code. A
flow from YAML or plain data may have another author, who must not send a secret anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput, SecretNotGranted
from perdure.model import check

ANY = "*"

_ORIGIN = re.compile(
    r"(?:(https?)://)?([a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"https": "443", "http": "80"}

NO_TARGET = declare(
    "grant.no_target",
    "a grant of secret {secret!r} must name tasks, node types or hosts",
    "Pass hosts=[...] for http and llm nodes, and tasks=[...] for others",
)
INVALID_HOST = declare(
    "grant.invalid_host",
    "a secret cannot be granted to host {host}",
    "Write api.example.com or api.example.com:8443, which mean HTTPS; http://host for plain HTTP; "
    "or '*' for any host",
)
INVALID_GRANT = declare(
    "grant.invalid",
    "{text!r} is not a grant: {part!r} is not flow=, task= or host=",
    "Write SECRET,flow=FLOW,host=HOST; flow=, task= and host= may be repeated",
)


@dataclass(frozen=True, slots=True, init=False)
class Grant:
    """Lets flows that were loaded as data use a secret.

    ``flows`` are their names, or ``name@version`` for one version only; by default all flows.
    ``hosts`` may be sent the secret by ``http`` and ``llm`` nodes: ``api.example.com`` means HTTPS
    on port 443.
    ``tasks`` are other node types, and tasks, whose config or inputs may contain the secret. ``*``
    stands for any.
    """

    secret: str
    flows: tuple[str, ...]
    tasks: tuple[str, ...]
    hosts: tuple[str, ...]
    """As origins: ``https://api.example.com``."""

    def __init__(
        self,
        secret: str,
        *,
        flows: Sequence[str] = (ANY,),
        tasks: Sequence[str] = (),
        hosts: Sequence[str] = (),
    ) -> None:
        found = {
            "secret": check.name(secret, "secret"),
            "flows": check.names(flows, "flows"),
            "tasks": check.names(tasks, "tasks"),
            "hosts": tuple(map(_origin, check.names(hosts, "hosts"))),
        }
        if not found["tasks"] and not found["hosts"]:
            raise InvalidInput(NO_TARGET.fault(("tasks",), secret=secret))
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def parse(text: str) -> Grant:
        """The grant in an option of the command line: ``SECRET,flow=FLOW,host=HOST``."""
        secret, *parts = text.split(",")
        found: dict[str, list[str]] = {}
        for part in parts:
            key, separator, value = part.partition("=")
            if not separator or key not in ("flow", "task", "host"):
                raise InvalidInput(INVALID_GRANT.fault(("grant",), text=text, part=part))
            found.setdefault(f"{key}s", []).append(value)
        return Grant(secret, **found)

    def permits(self, use: SecretUse, secret: str, destination: str | None) -> bool:
        """Whether this use of the secret is granted.

        Before a node's config is rendered, its ``destination`` is not known: None.
        """
        if secret != self.secret or not {ANY, use.flow, use.version} & {*self.flows}:
            return False
        if use.destinations is None:
            return bool({ANY, use.task} & {*self.tasks})
        return bool(self.hosts if destination is None else {ANY, destination} & {*self.hosts})


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretUse:
    """A node of a flow that was loaded as data, and the grants of the worker that executes it."""

    flow: str
    version: str
    """``name@version``."""
    node: str
    task: str
    """The node type or task."""
    destinations: Callable[[Any], Sequence[str]] | None
    """The origins for a rendered config, of a node type that has them."""
    grants: Sequence[Grant]

    def check(self, secret: str, destination: str | None = None) -> None:
        """Raise ``SecretNotGranted`` unless a grant permits this use of the secret."""
        if any(grant.permits(self, secret, destination) for grant in self.grants):
            return
        kind, name = ("task", self.task)
        if self.destinations is not None:
            kind, name = "host", destination or "HOST"
        raise SecretNotGranted(
            name=secret,
            flow=self.flow,
            node=self.node,
            destination=destination or "",
            target=f"{kind}s=[{name!r}]",
            flag=f"{secret},flow={self.flow},{kind}={name}",
        )


def _origin(host: str) -> str:
    """The origin of a host in a grant, as ``http`` nodes write theirs."""
    if host == ANY:
        return ANY
    found = _ORIGIN.fullmatch(host)
    if found is None:
        raise InvalidInput(INVALID_HOST.fault(("hosts",), host=safe_repr(host)))
    scheme = (found[1] or "https").lower()
    port = "" if found[3] in (None, _DEFAULT_PORTS[scheme]) else f":{int(found[3])}"
    return f"{scheme}://{found[2].lower()}{port}"
