"""The tasks of the flow: stand-ins for agents, deterministic and without network access."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from perdure import load_flow, task

STORE = "sqlite:///review_gate.db"


@task
def research(topic: str) -> dict[str, str]:
    """Return the input of each round: a brief, and feedback on the previous round."""
    return {"brief": f"three facts about {topic}", "feedback": ""}


@task
def review(change: dict[str, Any]) -> dict[str, Any]:
    if not any(file.startswith("test") for file in change["files"]):
        return {"score": 2, "remark": "there are no tests"}
    return {"score": 8, "remark": "it is tested"}


@task
def accept(change: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the change with the title as the maintainer edited it."""
    return {"accepted": True, **change, **answer["data"], "by": answer["by"]}


@task
def revise(brief: str, feedback: str | None) -> dict[str, Any]:
    """Return the input of the next round."""
    return {"accepted": False, "brief": brief, "feedback": feedback or "rejected without a word"}


@task
def publish(round: dict[str, Any]) -> str:
    files, people = " and ".join(round["files"]), ", ".join(round["by"])
    return f"published {round['title']!r} ({files}), risk {round['risk']}, approved by {people}"


@task
def tell(notice: dict[str, Any]) -> None:
    """Print a line; a real program would send an email or a message."""
    print(f"{notice['title']} {notice['message']}\n{how_to_answer(notice['approval'])}", flush=True)


def how_to_answer(approval: str) -> str:
    id, store = shlex.quote(approval), shlex.quote(STORE)
    return f"  in another shell: perdure decide {id} --role maintainers --store {store}"


flow = load_flow(
    Path(__file__).parent / "review_gate.yaml",
    tasks=[research, review, accept, revise, publish, tell],
)
