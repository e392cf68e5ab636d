"""Limits and cooldowns: how they are declared and stored, and who may start now."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidInput
from perdure.model.graph import Definition, Graph
from perdure.model.limit import (
    Concurrency,
    Limit,
    LimitInfo,
    LimitRule,
    LimitUsage,
    Rate,
    Spacing,
    computed_keys,
    info_of,
    limit_of,
)
from perdure.model.partition import Partition
from perdure.model.times import DURATION_MAX
from perdure.store.admission import (
    START_MARGIN,
    Room,
    check_worker_limits,
    governing_rules,
    holds_place,
    room_under,
    share_out,
    with_cooldown,
)
from perdure.testing.contract.builders import new_run
from tests.support.refusal import refused


class TestDeclared:
    """Limits as users declare them."""

    def test_a_limit_is_what_it_says(self):
        limit, rate = Concurrency(4, key="smtp", queue="mail"), Rate(100, per="1m", key="openai")
        assert (limit.count, limit.key, limit.queue, limit.task) == (4, "smtp", "mail", None)
        assert (rate.count, rate.per, rate.evenly) == (100, MINUTE, False)
        assert Spacing("2s").every == 2 * SECOND

    @pytest.mark.parametrize(
        "declare, code",
        [
            (lambda: Concurrency(0), "argument.range"),
            (lambda: Concurrency(-1), "argument.range"),
            (lambda: Concurrency(True), "argument.type"),
            (lambda: Concurrency(1.5), "argument.type"),  # type: ignore[arg-type]  # what is refused
            (lambda: Rate(0, per="1m"), "argument.range"),
            (lambda: Rate(1, per="0s"), "argument.not_positive"),
            (lambda: Rate(1, per="often"), "argument.duration"),
            (lambda: Rate(1, per=timedelta.max), "argument.range"),
            (lambda: Spacing("9999999d"), "argument.range"),
            (lambda: Spacing(0), "argument.not_positive"),
            (lambda: Spacing(-1), "argument.negative"),
        ],
    )
    def test_a_limit_that_makes_no_sense_is_refused(self, declare, code):
        with refused(code, InvalidInput):
            declare()


def stored(info: LimitInfo) -> LimitInfo:
    return msgspec.json.decode(msgspec.json.encode(info), type=LimitInfo)


class TestStoredLimit:
    """Limits as workers make them known: plain data that the same limits can be made of."""

    @pytest.mark.parametrize(
        "limit",
        [
            Concurrency(3, key="api"),
            Concurrency(1, queue="mail"),
            Rate(10, per="1m", evenly=True, task="send"),
            Rate(10, per=timedelta(milliseconds=1)),
            Spacing(DURATION_MAX, key="api"),
        ],
    )
    def test_a_limit_is_rebuilt_from_what_was_stored(self, limit):
        assert limit_of(stored(info_of(limit))) == limit

    def test_a_key_that_is_computed_stays_computed(self):
        limit = limit_of(stored(info_of(Concurrency(1, key=lambda tenant: tenant))))
        assert limit is not None
        assert callable(limit.key)

    def test_a_limit_of_another_type_is_left_out(self):
        assert limit_of(LimitInfo(key="cost")) is None


# Who may start now under limits.


NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
PARTITION = Partition(queue="mail", task="send")

rules = st.builds(
    LimitRule,
    key=st.just("k"),
    live_max=st.none() | st.integers(1, 5),
    starts_max=st.integers(1, 5),
    window=st.none() | st.just(MINUTE),
    spacing=st.none() | st.just(10 * SECOND),
)

past = st.integers(0, 90).map(lambda seconds: NOW - seconds * SECOND)

usages = st.builds(
    LimitUsage,
    live=st.integers(0, 7),
    starts=st.integers(0, 7),
    oldest_start_at=st.none() | past,
    last_start_at=st.none() | past,
    closed_until=st.none() | st.integers(-30, 30).map(lambda seconds: NOW + seconds * SECOND),
)


class TestRoomUnder:
    @given(rule=rules, usage=usages)
    def test_never_leaves_more_than_each_part_of_the_rule_allows(self, rule, usage):
        room = room_under(rule, usage, NOW)

        assert room.count >= 0
        if rule.live_max is not None:
            assert room.count <= max(0, rule.live_max - usage.live)
        if rule.starts_max is not None and rule.window is not None:
            assert room.count <= max(0, rule.starts_max - usage.starts)
        if rule.spacing is not None:
            assert room.count <= 1
            if usage.last_start_at is not None and usage.last_start_at + rule.spacing > NOW:
                assert room.count == 0
        if usage.closed_until is not None and usage.closed_until > NOW:
            assert room.count == 0

    @given(rule=rules, usage=usages)
    def test_opens_only_when_it_is_shut_and_never_in_the_past(self, rule, usage):
        room = room_under(rule, usage, NOW)
        if room.opens_at is not None:
            assert room.count == 0

    def test_counts_what_is_live(self):
        rule = LimitRule(key="k", live_max=3)
        assert room_under(rule, LimitUsage(live=1), NOW) == Room(count=2)
        assert room_under(rule, LimitUsage(live=3), NOW) == Room(count=0)
        assert room_under(rule, LimitUsage(live=9), NOW) == Room(count=0)

    def test_opens_when_the_oldest_start_leaves_the_window(self):
        rule = LimitRule(key="k", starts_max=2, window=MINUTE)
        oldest = NOW - 20 * SECOND
        full = room_under(rule, LimitUsage(starts=2, oldest_start_at=oldest), NOW)
        assert full == Room(count=0, opens_at=oldest + MINUTE)
        assert room_under(rule, LimitUsage(starts=1, oldest_start_at=oldest), NOW).count == 1

    def test_lets_one_start_when_the_spacing_is_over(self):
        rule = LimitRule(key="k", spacing=10 * SECOND)
        assert room_under(rule, LimitUsage(), NOW) == Room(count=1)
        assert room_under(rule, LimitUsage(last_start_at=NOW - 10 * SECOND), NOW).count == 1
        shut = room_under(rule, LimitUsage(last_start_at=NOW - 9 * SECOND), NOW)
        assert shut == Room(count=0, opens_at=NOW + SECOND)

    def test_opens_when_the_last_of_several_reasons_is_gone(self):
        rule = LimitRule(key="k", starts_max=1, window=MINUTE, spacing=10 * SECOND)
        usage = LimitUsage(starts=1, oldest_start_at=NOW, last_start_at=NOW)
        assert room_under(rule, usage, NOW).opens_at == NOW + MINUTE

    def test_stays_shut_while_it_is_closed_whatever_else_it_allows(self):
        rule = LimitRule(key="k", live_max=3)
        closed = room_under(rule, LimitUsage(closed_until=NOW + SECOND), NOW)
        open_again = room_under(rule, LimitUsage(closed_until=NOW), NOW)
        assert closed == Room(count=0, opens_at=NOW + SECOND)
        assert open_again == Room(count=3)


class TestShareOut:
    candidates = st.lists(
        st.lists(st.sampled_from("abc"), max_size=3, unique=True), max_size=20
    ).map(lambda keys: [(f"job-{number}", each) for number, each in enumerate(keys)])
    rooms = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4))

    @given(candidates=candidates, rooms=rooms, limit=st.integers(0, 10))
    def test_never_exceeds_a_room_or_the_limit(self, candidates, rooms, limit):
        chosen = share_out(candidates, rooms, limit)
        keys = dict(candidates)
        used = Counter(key for name in chosen for key in keys[name])
        assert len(chosen) <= limit
        assert all(count <= rooms.get(key, 0) for key, count in used.items())

    @given(candidates=candidates, rooms=rooms, limit=st.integers(0, 10))
    def test_skips_no_job_that_has_room(self, candidates, rooms, limit):
        chosen = share_out(candidates, rooms, limit)

        names = [name for name, _ in candidates]
        assert chosen == sorted(chosen, key=names.index), "in the order of the queue"
        left = Counter(rooms)
        for name, keys in candidates:
            if name in chosen:
                left.subtract(keys)
            elif len(chosen) < limit:
                assert any(left[key] <= 0 for key in keys)

    def test_changes_nothing_it_was_given(self):
        rooms = {"a": 1}
        share_out([("job", ["a"])], rooms, 5)
        assert rooms == {"a": 1}


class TestGoverningRules:
    def test_names_the_counter_of_a_task_after_it(self):
        assert governing_rules(PARTITION, [Concurrency(2)], []) == (
            LimitRule(key="task:send", live_max=2),
        )

    def test_uses_the_keys_that_were_computed_from_the_input(self):
        partition = Partition(queue="mail", task="send", keys=("user-7", "host-1"))
        limits = [
            Concurrency(2, key=lambda user: user),
            Concurrency(5, key="smtp"),
            Rate(9, per="1m", key=lambda user: user),
        ]

        assert governing_rules(partition, limits, []) == (
            LimitRule(key="user-7", live_max=2),
            LimitRule(key="smtp", live_max=5),
            LimitRule(key="host-1", starts_max=9, window=MINUTE + START_MARGIN),
        )

    def test_leaves_out_limits_of_other_queues_and_tasks(self):
        limits = [
            Concurrency(1, queue="other"),
            Concurrency(2, task="other"),
            Concurrency(3, queue="mail"),
            Concurrency(4, task="send"),
        ]

        assert governing_rules(PARTITION, [], limits) == (
            LimitRule(key="queue:mail", live_max=3),
            LimitRule(key="task:send", live_max=4),
        )

    def test_puts_everything_under_one_key_into_one_rule(self):
        limits = [
            Concurrency(4, key="smtp"),
            Rate(100, per="1m", key="smtp"),
            Spacing("2s", key="smtp"),
        ]
        assert governing_rules(PARTITION, limits[:1], limits[1:]) == (
            LimitRule(
                key="smtp",
                live_max=4,
                starts_max=100,
                window=MINUTE + START_MARGIN,
                spacing=2 * SECOND + START_MARGIN,
            ),
        )

    @pytest.mark.parametrize("turn", [1, -1])
    def test_lets_the_tighter_of_two_win(self, turn):
        limits = [
            Concurrency(4, key="k"),
            Concurrency(2, key="k"),
            Spacing("1s", key="k"),
            Spacing("3s", key="k"),
            Rate(60, per="1m", key="k"),
            Rate(50, per="60s", key="k"),
        ]

        assert governing_rules(PARTITION, [], limits[::turn]) == (
            LimitRule(
                key="k",
                live_max=2,
                starts_max=50,
                window=MINUTE + START_MARGIN,
                spacing=3 * SECOND + START_MARGIN,
            ),
        )

    @pytest.mark.parametrize("turn", [1, -1])
    def test_keeps_rates_in_different_windows_apart(self, turn):
        limits = [
            Rate(10, per="1s", key="k"),
            Rate(100, per="1m", key="k"),
            Concurrency(4, key="k"),
        ]

        assert governing_rules(PARTITION, [], limits[::turn]) == (
            LimitRule(key="k", live_max=4, starts_max=10, window=SECOND + START_MARGIN),
            LimitRule(key="k", starts_max=100, window=MINUTE + START_MARGIN),
        )

    def test_spaces_an_even_rate(self):
        [rule] = governing_rules(PARTITION, [Rate(6, per="1m", evenly=True)], [])
        assert rule.spacing == (MINUTE + START_MARGIN) / 6


class TestHoldsPlace:
    """Finding 26: for how long a late start may be moved."""

    def test_is_the_shortest_window_or_spacing(self):
        """Finding 26: after that, another job may have the place."""
        rules = (
            LimitRule(key="k", starts_max=9, window=MINUTE),
            LimitRule(key="k", starts_max=1, window=HOUR, spacing=2 * SECOND),
        )
        assert holds_place(rules) == 2 * SECOND

    def test_does_not_depend_on_the_claims_of_an_even_rate(self):
        """Finding 26: a late body of an even rate would never start otherwise."""
        rules = governing_rules(PARTITION, [Rate(100, per="1s", evenly=True)], [])
        assert holds_place(rules) == SECOND + START_MARGIN


class TestCheckWorkerLimits:
    def test_narrows_a_limit_whose_key_is_a_queue_or_task_of_the_worker(self):
        limits = [Concurrency(4, key="mail"), Rate(5, per="1s", key="send"), Spacing(1, key="x")]
        checked = check_worker_limits(limits, ["mail"], ["send"])
        assert checked == (
            Concurrency(4, key="mail", queue="mail"),
            Rate(5, per="1s", key="send", task="send"),
            Spacing(1, key="x"),
        )

    def test_leaves_a_limit_as_narrow_as_it_was_declared(self):
        limit = Concurrency(4, key="mail", task="send")
        assert check_worker_limits([limit], ["mail"], ["send"]) == (limit,)

    def test_keeps_an_even_rate_even(self):
        [narrowed] = check_worker_limits([Rate(5, per=1, evenly=True, key="q")], ["q"], [])
        assert narrowed == Rate(5, per=1, evenly=True, key="q", queue="q")

    @pytest.mark.parametrize(
        "limit, code",
        [
            (Concurrency(4), "limit.without_key"),
            (Concurrency(4, key=lambda text: text), "limit.computed_key"),
            (Limit(key="k"), "argument.type"),
            (4, "argument.type"),
        ],
    )
    def test_refuses_what_a_worker_cannot_apply(self, limit, code):
        with refused(code, InvalidInput):
            check_worker_limits([limit], ["mail"], ["send"])


class TestComputedKeys:
    LIMITS = (Concurrency(1, key=lambda user: user), Concurrency(1, key=lambda user: user))

    def test_takes_texts(self):
        assert computed_keys(self.LIMITS, ["a", "b"]) == ("a", "b")

    @pytest.mark.parametrize("value", ["", None, 7, b"a"])
    def test_refuses_anything_else_and_names_it(self, value):
        shown = value if value is None or isinstance(value, str | int) else repr(value)
        with refused("limit.invalid_key", limit="Concurrency", value=shown):
            computed_keys(self.LIMITS, ["a", value])


# Flows that cool down: which runs come too soon, and what is kept of those.


HOUR = timedelta(hours=1)


class TestWithCooldown:
    def test_has_that_of_the_flow(self):
        warm = Graph(Definition(name="orders", nodes=()))
        cool = Graph(Definition(name="orders", nodes=(), cooldown_ms=1500))
        assert with_cooldown(new_run(), warm).cooldown is None
        assert with_cooldown(new_run(), cool).cooldown == timedelta(seconds=1.5)
        assert b"cooldown" not in warm.data
