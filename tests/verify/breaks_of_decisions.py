"""Ways to break what was decided: logs that the rules never write, waits that nobody opened."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from perdure.model import event as events
from perdure.model.run import WaitType
from tests.verify.broken import Broken, Case

AGES = timedelta(days=18_000)


# I10: the log is what the rules decide


def leave_a_node_out(broken: Broken) -> None:
    """The whole log agrees that the chain had one node only."""
    first = broken.event("chain", 2)
    last = broken.event("chain", 4)
    assert isinstance(first, events.NodeCompleted)
    assert isinstance(last, events.RunCompleted)
    log = broken.log("chain")
    del log[2]
    broken.rewrite("chain", 2, replace(first, effects=events.NOTHING))
    log[2] = replace(log[2], event=replace(log[2].event, number=3))
    broken.rewrite("chain", 3, replace(last, ref=2))
    broken.change_run("chain", number=3)


def give_the_output_of_another_node(broken: Broken) -> None:
    number = broken.find("chain", events.RunCompleted)
    broken.rewrite("chain", number, events.RunCompleted(ref=2))


def start_what_does_not_follow(broken: Broken) -> None:
    event = broken.event("mapped", 1)
    assert isinstance(event, events.RunSubmitted)
    fewer = replace(event.effects, mapped=(("m", 2),), started=event.effects.started[:2])
    broken.rewrite("mapped", 1, replace(event, effects=fewer))


def gather_other_items(broken: Broken) -> None:
    completed = broken.find("mapped", events.NodeCompleted)
    broken.set_value("mapped", completed, b'["wrong"]')


# I7: what is open is what was asked for


def forget_when_a_timer_is_due(broken: Broken) -> None:
    broken.change_wait("sleeping", "d", due_at=None)


def let_a_timer_be_due_in_ages(broken: Broken) -> None:
    due_at = broken.wait("sleeping", "d").opened_at + AGES
    broken.change_wait("sleeping", "d", due_at=due_at)


def let_a_timer_be_due_early(broken: Broken) -> None:
    due_at = broken.wait("sleeping", "d").opened_at + timedelta(hours=1)
    broken.change_wait("sleeping", "d", due_at=due_at)


def turn_a_timer_into_a_wait_for_a_signal(broken: Broken) -> None:
    broken.change_wait("sleeping", "d", type=WaitType.SIGNAL)


def turn_an_approval_into_a_timer(broken: Broken) -> None:
    broken.change_wait("open", "ok", type=WaitType.TIMER)


def listen_for_another_signal(broken: Broken) -> None:
    broken.change_wait("asking", "w", name="other")


def ask_nobody(broken: Broken) -> None:
    broken.change_wait("open", "ok", deciders=())


def lose_what_is_asked(broken: Broken) -> None:
    broken.change_wait("open", "ok", detail=b"")


def garble_what_is_asked(broken: Broken) -> None:
    broken.change_wait("open", "ok", detail=b"\xff\x00")


DECISIONS: list[Case] = [
    (leave_a_node_out, "I10", "log_as_decided"),
    (give_the_output_of_another_node, "I10", "log_as_decided"),
    (start_what_does_not_follow, "I10", "log_as_decided"),
    (gather_other_items, "I10", "log_as_decided"),
    (forget_when_a_timer_is_due, "I7", "waits_as_opened"),
    (let_a_timer_be_due_in_ages, "I7", "waits_as_opened"),
    (let_a_timer_be_due_early, "I7", "waits_as_opened"),
    (turn_a_timer_into_a_wait_for_a_signal, "I7", "waits_as_opened"),
    (turn_an_approval_into_a_timer, "I7", "waits_as_opened"),
    (listen_for_another_signal, "I7", "waits_as_opened"),
    (ask_nobody, "I7", "waits_as_opened"),
    (lose_what_is_asked, "I7", "waits_as_opened"),
    (garble_what_is_asked, "I7", "waits_as_opened"),
]
