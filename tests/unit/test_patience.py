"""After an outage, leases that ran out say nothing about their holders."""

from __future__ import annotations

from datetime import timedelta

from perdure.worker.poller import OUTAGE_SECONDS, RECONNECT_SECONDS, Patience

LEASE = timedelta(seconds=30)
RENEWAL_SECONDS = 10.0


class Watch:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_is_not_needed_while_the_store_answers_promptly() -> None:
    patience = Patience(LEASE, Watch())

    patience.note_delay(OUTAGE_SECONDS)

    assert not patience.is_needed


def test_lasts_until_every_worker_had_the_time_to_renew() -> None:
    watch = Watch()
    patience = Patience(LEASE, watch)
    patience.note_delay(40)

    watch.seconds += RENEWAL_SECONDS + RECONNECT_SECONDS - 0.1
    assert patience.is_needed
    watch.seconds += 0.2
    assert not patience.is_needed


def test_lets_jobs_be_taken_over_between_delays_that_never_end() -> None:
    watch = Watch()
    patience = Patience(LEASE, watch)
    needed = []
    for _ in range(120):
        patience.note_delay(2)
        needed.append(patience.is_needed)
        watch.seconds += 1

    assert needed.count(False) >= 45


def test_begins_anew_with_a_later_outage() -> None:
    watch = Watch()
    patience = Patience(LEASE, watch)
    patience.note_delay(2)
    watch.seconds += 2 * (RENEWAL_SECONDS + RECONNECT_SECONDS)

    patience.note_delay(2)

    assert patience.is_needed
