"""Names that changed keep their stored form, which flow versions hash and stored flows compare."""

from __future__ import annotations

from perdure import ExternalFailed, Retry
from perdure.model.failure import Failure
from perdure.model.outcome import Failed
from perdure.model.retry import decode_policy, encode_policy
from tests.rules.graphs import graph, task
from tests.rules.played import Played


def test_a_retry_policy_stores_the_earlier_name_of_an_error():
    stored = encode_policy(Retry(3, on=ExternalFailed), None)

    assert stored is not None
    assert b'"perdure.errors.OutsideFailed"' in stored
    assert decode_policy(stored).retry == Retry(3, on=ExternalFailed)


def test_an_error_port_hands_on_the_earlier_name_of_an_error():
    run = Played(graph(task("a", on_error="oops"), task("mend"), edges="a.oops mend"), 1)

    failure = Failure(type="perdure.errors.ExternalFailed", message="no")
    run.end("a", Failed(failure=failure))

    assert run.inputs["mend"] == {"type": "perdure.errors.OutsideFailed", "message": "no"}
