"""After an outage, leases that ran out say nothing about their holders."""

from __future__ import annotations

from datetime import timedelta

from perdure.worker.poller import OUTAGE_SECONDS, RECONNECT_SECONDS, TakeoverGrace

LEASE = timedelta(seconds=30)
RENEWAL_SECONDS = 10.0


class Watch:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_is_not_needed_while_the_store_answers_promptly():
    grace = TakeoverGrace(LEASE, Watch())

    grace.note_delay(OUTAGE_SECONDS)

    assert not grace.seconds_left


def test_lasts_until_every_worker_had_the_time_to_renew():
    watch = Watch()
    grace = TakeoverGrace(LEASE, watch)
    grace.note_delay(40)

    watch.seconds += RENEWAL_SECONDS + RECONNECT_SECONDS - 0.1
    assert grace.seconds_left
    watch.seconds += 0.2
    assert not grace.seconds_left


def test_lets_jobs_be_taken_over_between_delays_that_never_end():
    watch = Watch()
    grace = TakeoverGrace(LEASE, watch)
    needed = []
    for _ in range(120):
        grace.note_delay(2)
        needed.append(grace.seconds_left)
        watch.seconds += 1

    assert needed.count(False) >= 45


def test_begins_anew_with_a_later_outage():
    watch = Watch()
    grace = TakeoverGrace(LEASE, watch)
    grace.note_delay(2)
    watch.seconds += 2 * (RENEWAL_SECONDS + RECONNECT_SECONDS)

    grace.note_delay(2)

    assert grace.seconds_left
