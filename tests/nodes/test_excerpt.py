"""Parts of texts, cut between words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.model.text import first_words, last_words


def test_a_short_text_is_whole():
    assert first_words("one two", 7) == last_words("one two", 7) == "one two"


def test_words_are_kept_whole():
    assert first_words("one two three", 9) == "one two "
    assert last_words("one two three", 9) == " three"
    assert first_words('{"key":"sesame"}', 12) == '{"key":"'


def test_nothing_is_kept_of_one_long_word():
    assert first_words("sesame" * 9, 10) == last_words("sesame" * 9, 10) == ""


@given(st.lists(st.sampled_from(["sesame", "x", "door"])), st.integers(0, 60))
def test_no_word_is_ever_cut_in_two(words, length):
    text = " ".join(words)

    for part in (first_words(text, length), last_words(text, length)):
        assert len(part) <= max(length, 0)
        assert set(part.split()) <= set(words)
