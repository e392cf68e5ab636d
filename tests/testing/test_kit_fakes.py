"""Fakes in the kit: what may stand for what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Context, Flow, InvalidInput, Permanent, Retry, complete, task
from perdure.testing import Kit, NotFaked, in_turn
from tests.support.refusal import refused
from tests.testing.kit_flows import (
    Order,
    charge,
    double,
    doubling,
    fetch,
    growing,
    ordering,
    refund,
    routing,
    sending,
    ship,
)

FAKES: dict[Any, Any] = {fetch: Order(7, 90), "charge": "receipt 1"}


async def asynchronous(value: Any, *more: Any, **others: Any) -> str:
    return "async"


class TestWhatAFakeDoes:
    @pytest.mark.parametrize(
        "fakes, result",
        [
            ({}, "receipt 1 shipped by ship"),
            ({"charge": lambda order: f"{order.total} paid"}, "90 paid shipped by ship"),
            ({"charge": complete("free")}, "free shipped by ship"),
            ({"charge": asynchronous, "ship": asynchronous}, "async"),
        ],
        ids=["a value", "a function", "a result", "async functions"],
    )
    def test_what_it_returns_is_the_output(self, fakes, result):
        with Kit(fakes=FAKES | fakes) as kit:
            kit.submit(ordering, 7).assert_completed(result)

    def test_a_function_gets_the_context_where_the_task_does(self):
        def shipping(receipt: str, ctx: Context) -> str:
            return f"{receipt} in attempt {ctx.attempt}"

        with Kit(fakes=FAKES | {"ship": shipping}) as kit:
            kit.submit(ordering, 7).assert_completed("receipt 1 in attempt 1")

    @pytest.mark.parametrize("error", [Permanent("no money"), Permanent])
    def test_an_exception_is_raised(self, error):
        with Kit(fakes=FAKES | {"charge": error}) as kit:
            kit.submit(ordering, 7).assert_failed("Permanent", at="charge")

    def test_outcomes_come_in_turn_and_the_last_one_stays(self):
        with Kit(fakes={double: in_turn(10, lambda number: number + 1, 0)}) as kit:
            kit.submit(doubling, [1, 2, 3, 4]).assert_completed([10, 3, 0, 0])

    def test_a_fake_may_choose_a_port(self):
        flow = Flow.from_dict(
            {
                "flow": "checking",
                "nodes": [
                    {
                        "id": "ask",
                        "type": "http",
                        "config": {"url": "https://example.org/"},
                        "next": {"default": "good", "error": "bad"},
                        "on_error": "error",
                    },
                    {"id": "good", "type": "note", "config": {"text": "up"}},
                    {"id": "bad", "type": "note", "config": {"text": "down"}},
                ],
            }
        )
        with Kit(fakes={"ask": in_turn({"status": 200}, Permanent("refused"))}) as kit:
            kit.submit(flow).assert_executed("ask", "good")
            kit.submit(flow).assert_executed("bad")

    def test_the_latest_fake_counts_from_then_on(self):
        with Kit(fakes=FAKES) as kit:
            kit.submit(ordering, 7).assert_completed("receipt 1 shipped by ship")
            kit.fake("ship", "lost")
            kit.submit(ordering, 7).assert_completed("lost")


class TestWhatAFakeStandsFor:
    def test_one_node_of_several_with_the_same_task(self):
        twice = Flow("twice").then(double, name="first").then(double, name="second").build()
        with Kit(fakes={"second": 0}) as kit:
            assert kit.submit(twice, 3).outputs == {"first": 6, "second": 0}

    @pytest.mark.parametrize(
        "fakes, flow, input, result",
        [
            ({"each[1]": -1}, doubling, [1, 2, 3], [2, -1, 6]),
            ({"parity": "even"}, routing, 3, 3),
            ({"send": "sent"}, sending, 1, "sent"),
            (
                FAKES,
                Flow("outer").flow(ordering, name="inner").build(),
                7,
                "receipt 1 shipped by ship",
            ),
        ],
        ids=["an item", "a function of the flow", "a node that would pause", "a child's task"],
    )
    def test_a_node_by_its_name(self, fakes, flow, input, result):
        with Kit(fakes=fakes) as kit:
            kit.submit(flow, input).assert_completed(result)

    def test_the_body_of_a_loop(self):
        with Kit(fakes={"grow": in_turn(1, 2, 11)}) as kit:
            run = kit.submit(growing, 5)
            run.assert_completed(11)
            run.assert_executed("grow#1", "grow#2", "grow")

    def test_a_function_that_is_no_task(self):
        def download(address: str) -> str:
            raise AssertionError("there is no network in the tests")

        reading = Flow("reading").then(download, name="get").build()
        with Kit(fakes={download: "a page"}) as kit:
            kit.submit(reading, "x").assert_completed("a page")

    def test_an_undo_by_its_task_and_not_by_its_node(self):
        with Kit(fakes=FAKES | {"ship": Permanent("no truck"), refund: None}) as kit:
            run = kit.submit(ordering, 7)
            run.assert_failed("no truck", at="ship")
            run.assert_event("node_undone", "charge", times=1)
            assert [call.key for call in kit.calls_of(refund)] == ["undo:charge"]

    def test_a_plain_job(self):
        with Kit(fakes={charge: "receipt 2"}) as kit:
            kit.enqueue(charge, Order(1, 2)).assert_completed("receipt 2")

    def test_a_task_that_would_run_in_a_process(self):
        @task(isolation="process")
        def heavy(number: int) -> int:
            raise AssertionError("too heavy for the tests")

        with Kit(fakes={heavy: 5}) as kit:
            kit.enqueue(heavy, 3).assert_completed(5)


class TestCalls:
    def test_are_noted_real_or_faked(self):
        with Kit(fakes=FAKES) as kit:
            kit.submit(ordering, 7, id="order-7")
            charged, shipped = kit.calls_of(charge) + kit.calls_of("ship")
            assert (charged.args, charged.is_fake) == ((Order(7, 90),), True)
            assert (shipped.args, shipped.kwargs, shipped.is_fake) == (("receipt 1",), {}, False)
            assert (shipped.run, shipped.key, shipped.attempt) == ("order-7", "ship", 1)

    def test_of_one_node_are_distinguished(self):
        with Kit() as kit:
            kit.submit(doubling, [4, 5])
            assert [call.args for call in kit.calls_of("each")] == [(4,), (5,)]
            assert [call.args for call in kit.calls_of("each[1]")] == [(5,)]


class TestRefusals:
    def test_an_unknown_name_is_refused_with_the_known_ones(self):
        known = ("charge", "fetch", "refund", "ship")
        with (
            Kit(fakes={"chrage": "ok"}) as kit,
            refused("testing.fake_for_nothing", InvalidInput, target="'chrage'", known=known),
        ):
            kit.submit(ordering, 7)

    def test_a_task_that_nothing_calls_is_refused(self):
        with Kit(fakes={ship: 1}) as kit, refused("testing.fake_for_nothing", target="'ship'"):
            kit.submit(doubling, [1])

    @pytest.mark.parametrize("target", [None, 3, ["charge"]])
    def test_what_cannot_be_a_target_is_refused(self, target):
        with Kit() as kit, refused("argument.type", InvalidInput, name="target"):
            kit.fake(target, 1)

    def test_fakes_that_are_no_mapping_are_refused(self):
        with refused("argument.type", InvalidInput, name="fakes"):
            Kit(fakes=["charge"])  # type: ignore[arg-type]  # that is what is tested

    def test_nothing_in_turn_is_refused(self):
        with refused("testing.no_outcome", InvalidInput):
            in_turn()

    def test_turns_within_turns_are_refused(self):
        with refused("testing.nested_in_turn", InvalidInput):
            in_turn(1, in_turn(2))


class TestFakesOnly:
    def test_a_task_without_a_fake_is_named(self):
        with (
            Kit(fakes=FAKES, fakes_only=True) as kit,
            refused("testing.not_faked", NotFaked, task="ship", key="ship"),
        ):
            kit.submit(ordering, 7)

    def test_is_not_retried_away(self):
        @task(retries=Retry(5, first=0))
        def eager(number: int) -> int:
            return number

        with Kit(fakes_only=True) as kit, pytest.raises(NotFaked):
            kit.enqueue(eager, 1)

    def test_what_belongs_to_the_flow_is_executed(self):
        with Kit(fakes={"double": 1}, fakes_only=True) as kit:
            kit.submit(routing, 3).assert_completed(1)
