"""Patterns: they find what ``re`` finds, and end in time where ``re`` does not."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.expr.pattern import PATTERN_MAX, TEXT_MAX, is_found, pattern_fault, search_cost

atoms = st.sampled_from(
    ["a", "b", ".", r"\d", r"\w", r"\s", r"\W", "[ab]", "[^a]", "[a-c1]", r"[\d_]", "é", "\n", "K"]
)
places = st.sampled_from(["^", "$", r"\b", r"\A", r"\Z"])
repeats = st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{,2}", "{2,}"])
patterns = st.recursive(
    atoms | places,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"({'|'.join(ways)})")
        | st.tuples(atoms, repeats).map("".join)
        | st.tuples(inner, repeats).map(lambda both: f"(?:{both[0]}){both[1]}")
        | inner.map(lambda inside: f"(?P<name>{inside})")
        | inner.map(lambda inside: f"(?i:{inside})")
    ),
    max_leaves=6,
).filter(lambda pattern: pattern.count("?P<name>") < 2)
flags = st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)", "(?ims)"])
short_texts = st.text(st.sampled_from("abcAkK1_é \nßSs\u212a"), max_size=8)


class TestIsFound:
    @settings(max_examples=500)
    @given(flag=flags, pattern=patterns, text=short_texts)
    @example(flag="", pattern="a$", text="a\n")
    @example(flag="", pattern=r"a\Z", text="a\n")
    @example(flag="(?m)", pattern="^b$", text="a\nb\n")
    @example(flag="(?i)", pattern="(?-i:k)K", text="kk")
    @example(flag="(?i)", pattern="k", text="\u212a")
    @example(flag="(?a)", pattern=r"\bé", text="aé")
    @example(flag="", pattern="(a*)*b", text="aab")
    @example(flag="", pattern="(|a)+b", text="aab")
    @example(flag="", pattern="", text="")
    def test_agrees_with_re(self, flag, pattern, text):
        whole = flag + pattern

        assert pattern_fault(whole) is None
        assert is_found(whole, text) is bool(re.search(whole, text))

    def test_is_nothing_in_a_text_that_is_too_long(self):
        assert is_found("a", "a" * TEXT_MAX)
        assert not is_found("a", "a" * (TEXT_MAX + 1))

    def test_is_nothing_for_a_pattern_that_cannot_be_used(self):
        assert not is_found("(?=a)", "a")


class TestACatastrophicPattern:
    """Each of these takes ``re`` longer than the suite may last."""

    @pytest.mark.parametrize(
        "pattern, text, with_it",
        [
            (r"(a+)+$", "a" * 9_999 + "b", "baa"),
            (r"(a|a)+$", "a" * 9_999 + "b", "baa"),
            (r"(a|aa)+$", "a" * 9_999 + "b", "baa"),
            (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 10_000, "aa-Aa"),
            (r"(.*)(.*)(.*)(.*)(.*)x", "y" * 10_000, "yx"),
            (r"a*a*a*a*a*a*b", "a" * 10_000, "aab"),
            (r"(\s*\s*)*x", " " * 10_000, "  x"),
            (r"((a?){30}){10}b", "a" * 10_000, "ab"),
        ],
    )
    def test_ends_in_time(self, pattern, text, with_it):
        assert pattern_fault(pattern) is None
        assert not is_found(pattern, text)
        assert is_found(pattern, with_it)


class TestPatternFault:
    @pytest.mark.parametrize(
        "pattern, told",
        [
            ("a" * (PATTERN_MAX + 1), "501 characters"),
            ("(", "is not a pattern"),
            ("[", "is not a pattern"),
            ("a**", "is not a pattern"),
            ("a{99999999999}", "is not a pattern"),
            ("a{1500}", "too large with its repeats written out"),
            ("(a{100}){100}", "too large with its repeats written out"),
            ("(?:(?:(?:){1000}){1000}){1000}", "too large with its repeats written out"),
            ("(?:){4000000000}", "too large with its repeats written out"),
            (r"(a)\1", "refers to a group"),
            (r"(a)?(?(1)b|c)", "refers to a group"),
            ("(?=a)b", "looks ahead or behind"),
            ("(?<!a)b", "looks ahead or behind"),
            ("(?>a)b", "atomic group"),
            ("a++b", "possessive repeat"),
            ("(" * 200 + ")" * 200, "more than 100 groups"),
        ],
    )
    def test_says_why_it_cannot_be_used(self, pattern, told):
        text = str(pattern_fault(pattern))

        assert told in text
        assert len(text) < 200

    @pytest.mark.parametrize(
        "pattern", [r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", r"^[a-z]{1,500}$", r"^\+?[\d ]{5,20}$", ""]
    )
    def test_is_empty_for_what_forms_use(self, pattern):
        assert pattern_fault(pattern) is None

    @given(pattern=st.text(st.sampled_from("ab()[]{}|*+?\\^$.-,012:=!<>Pi&~"), max_size=30))
    def test_or_the_pattern_works(self, pattern):
        fault = pattern_fault(pattern)

        assert is_found(pattern, "a-b") in ((False,) if fault else (False, True))


class TestSearchCost:
    def test_grows_with_text_and_pattern(self):
        small = search_cost("ab", "x" * 100)

        assert small < search_cost("ab", "x" * 1_000) < search_cost("(ab){50}", "x" * 1_000)
        assert search_cost("ab", "x" * TEXT_MAX) == search_cost("ab", "x" * TEXT_MAX * 9)
