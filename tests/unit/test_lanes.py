"""Partitions: how they are written, and who may run what is in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.partition import Partition
from perdure.model.worker import can_run

texts = st.text(st.characters(codec="utf-8"))
partitions = st.builds(
    Partition,
    queue=texts,
    task=texts,
    tags=st.lists(texts, max_size=3).map(tuple),
    keys=st.lists(texts, max_size=3).map(tuple),
)


class TestLane:
    @given(partition=partitions)
    def test_comes_back_as_it_was_written(self, partition):
        assert Partition.parse(partition.text) == partition

    @given(first=partitions, second=partitions)
    def test_has_a_text_of_its_own(self, first, second):
        assert (first.text == second.text) == (first == second)

    def test_tells_tags_and_keys_apart(self):
        tagged = Partition(queue="mail", task="send", tags=("gpu",))
        keyed = Partition(queue="mail", task="send", keys=("gpu",))

        assert tagged.text != keyed.text


class TestCanRun:
    PARTITION = Partition(queue="mail", task="send", tags=("gpu", "eu"), keys=("user-7",))

    @pytest.mark.parametrize(
        "queues, tags, expected",
        [
            (["mail"], None, True),
            (["default", "mail"], ["eu", "gpu", "big"], True),
            (["default"], None, False),
            (["mail"], ["gpu"], False),
            (["mail"], [], False),
        ],
    )
    def test_asks_for_the_queue_and_all_tags(self, queues, tags, expected):
        assert can_run(self.PARTITION, queues=queues, tags=tags) is expected

    def test_lets_any_worker_run_what_has_no_tags(self):
        partition = Partition(queue="mail", task="send")

        for tags in (None, [], ["gpu"]):
            assert can_run(partition, queues=["mail"], tags=tags)


class TestATextThatIsNoLane:
    @pytest.mark.parametrize(
        "text", ["", "null", "7", "[]", '["mail"]', '["mail",', "{}", "[" * 9_999]
    )
    def test_is_a_partition_that_nobody_has_code_for(self, text):
        partition = Partition.parse(text)

        assert (partition.queue, partition.task) == ("", "")
