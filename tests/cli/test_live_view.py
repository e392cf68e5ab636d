"""The picture of a run: it fits the terminal, hides what matters least, and needs no colours."""

from __future__ import annotations

import io

import pytest
from immutables import Map
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from perdure import Flow, Progress, RunStatus, Status
from perdure.cli.views.live import Look, lines_of
from perdure.cli.views.screen import ASCII, UNICODE, LiveView, Signs, fit_lines, screen
from perdure.model.run import NodeStatus, WaitType
from perdure.operations.records import RunSnapshot
from tests.cli.sights import NOW, event, items, job, snapshot, wait, work, worker

NOON = f"{NOW.astimezone():%H:%M:%S}"
LIVE, COMPLETED = NodeStatus.LIVE, NodeStatus.COMPLETED


def busy() -> RunSnapshot:
    """A map with items at work, one of them at a silent worker, beside a retry."""
    return snapshot(
        {"fetch": COMPLETED, "pack": LIVE, "price": LIVE},
        jobs=[
            job("pack[2]", progress=Progress(percent=50, message="a very long message " * 5)),
            job("pack[3]", worker="bob"),
            job("price", Status.SCHEDULED, failures=1),
        ],
        workers=[worker("bob", 6), worker("ann")],
        maps=Map({"pack": items(8, 2)}),
    )


def _screen(seen: RunSnapshot) -> list[Text]:
    return screen(seen, lines_of(seen), [], (80, 24), UNICODE)


def drawn(seen: RunSnapshot, width: int, height: int, signs: Signs = UNICODE) -> list[str]:
    events = [event(number) for number in range(1, 9)]
    return [line.plain for line in screen(seen, lines_of(seen), events, (width, height), signs)]


def long_chain(count: int) -> RunSnapshot:
    flow = Flow("chain")
    for number in range(count):
        flow.then(work, name=f"node{number}")
    nodes = {f"node{number}": COMPLETED for number in range(count // 2)}
    middle = f"node{count // 2}"
    return snapshot({**nodes, middle: LIVE}, jobs=[job(middle)], flow=flow.build())


class TestScreen:
    @pytest.mark.parametrize("signs", [UNICODE, ASCII])
    @pytest.mark.parametrize("height", [8, 14, 24, 60])
    @pytest.mark.parametrize("width", [20, 40, 69, 70, 80, 200])
    def test_fits(self, width, height, signs):
        for seen in (busy(), long_chain(50)):
            lines = drawn(seen, width, height, signs)

            assert len(lines) <= height
            assert max(map(cell_len, lines)) <= width

    def test_has_everything_where_there_is_room(self):
        assert drawn(busy(), 80, 24) == [
            "order-7 of shop running 12s, 1/8 nodes",
            "● ann 1 job  ✗ bob silent 6s",
            "",
            "✓ fetch       completed",
            "├ ● pack      running   ━━━─────────     2/8  2 running",
            "│   ● pack[3] running                         bob 3s",
            "│     bob is silent; others take over in 4s",
            "│   ● pack[2] running   ━━━━━━──────     50%  ann 3s, a very long message a ver…",
            "╰ ↻ price     retrying",
            "  · tax       to come",
            "· bill        to come",
            "· review      to come",
            "├ · refuse    to come",
            "╰ · ship      to come",
            "",
            *[f'{NOON} node completed fetch {{"number":{number}}}' for number in range(4, 9)],
        ]

    def test_says_states_in_words_in_a_narrow_terminal_too(self):
        lines = drawn(busy(), 40, 24)

        assert "├ ● pack      running       2/8" in lines
        assert "╰ ↻ price     retrying" in lines

    def test_shows_a_question_with_the_command_in_full(self):
        seen = snapshot({"review": LIVE}, waits=[wait("review", WaitType.APPROVAL, "Refund 120?")])
        lines = drawn(seen, 24, 30)
        at = lines.index("  asks anyone: Refund")

        assert lines[at + 1 : at + 4] == [
            "  120?",
            "  → perdure decide order",
            "    -7:review",
        ]

    def test_has_colours_for_states_and_not_for_names(self):
        [line] = [each for each in _screen(busy()) if "price" in each.plain]
        styles = {line.plain[span.start : span.end].strip(): span.style for span in line.spans}

        assert (styles["↻"], styles["retrying"]) == ("yellow", "yellow")
        assert "price" not in styles
        assert line.style == ""

    def test_counts_what_it_hides(self):
        lines = drawn(long_chain(50), 80, 14)

        assert any(line.startswith("● node25 running") for line in lines)
        assert "… and 21 to come, 22 completed" in lines

    def test_says_that_nobody_works(self):
        assert "no live worker" in drawn(snapshot({"fetch": LIVE}), 80, 24)

    def test_counts_workers_that_are_too_many_to_name(self):
        crew = [worker(f"w{number}") for number in range(30)]
        seen = snapshot({"fetch": LIVE}, jobs=[job("fetch", worker="w3")], workers=crew)

        assert drawn(seen, 80, 24)[1] == "30 workers, 1 of them at this run"

    def test_of_an_ended_run_has_no_workers(self):
        seen = snapshot({"fetch": COMPLETED}, workers=[worker("ann")], status=RunStatus.COMPLETED)

        assert drawn(seen, 80, 24)[:2] == ["order-7 of shop completed 12s, 1/8 nodes", ""]

    def test_draws_in_ascii(self):
        assert all(line.replace("…", "").isascii() for line in drawn(busy(), 80, 24, ASCII))


class TestFitting:
    def test_gives_up_items_before_nodes(self):
        lines = lines_of(busy())
        kept = fit_lines(lines, 9, 80)

        assert [each.name for each in kept] == [each.name for each in lines if not each.is_part]

    def test_keeps_what_is_nearest_to_the_work(self):
        kept = fit_lines(lines_of(long_chain(20)), 6, 80)

        assert [each.name for each in kept] == ["node8", "node9", "node10", "node11", "node12"]

    def test_keeps_all_if_they_fit(self):
        lines = lines_of(busy())

        assert fit_lines(lines, 12, 80) == lines


def test_every_look_has_its_own_sign():
    for signs in (UNICODE, ASCII):
        assert set(signs.looks) == set(Look)


@pytest.mark.parametrize("width", [40, 80])
def test_is_drawn_by_rich_with_what_stands_below_it(width):
    console = Console(file=io.StringIO(), width=width, height=20, force_terminal=True, record=True)
    console.print(LiveView(busy(), [event(1)], footer=[Text("told by the demo")]))
    lines = console.export_text().splitlines()

    assert lines[0].startswith("order-7 ")
    assert lines[-1].rstrip() == "told by the demo"
    assert len(lines) < 20
