"""No claim on the pages about other systems goes unchecked, and no check is left without one."""

from __future__ import annotations

import re

import pytest

from tests.docs.coming_from.claims import SYSTEMS, Claims, fault_of_call
from tests.docs.pages import ROOT, page

CLAIMS = [pytest.param(Claims(system), id=system) for system in SYSTEMS]


@pytest.mark.parametrize("claims", CLAIMS)
def test_every_behaviour_names_its_test_and_every_test_its_behaviour(claims):
    assert sorted(map(str, claims.named_tests())) == sorted(claims.existing_tests())


@pytest.mark.parametrize("claims", CLAIMS)
def test_our_words_are_those_of_the_glossary(claims):
    glossary = page("docs/concepts/glossary.md").text
    known = {
        word.strip()
        for line in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
        for word in re.sub(r"\([^)]*\)", "", line).split(",")
    }

    assert set(claims.our_words()) - known == set()


@pytest.mark.parametrize("claims", CLAIMS)
def test_our_calls_exist_with_what_they_are_shown_to_take(claims):
    calls = claims.our_calls()

    assert [fault for call in calls if (fault := fault_of_call(call))] == []
    assert len(calls) >= 10


@pytest.mark.parametrize("claims", CLAIMS)
def test_our_settings_have_the_defaults_that_are_shown(claims):
    settings = claims.our_settings()

    faults = [fault_of_call(each, with_defaults=True) for each in settings]
    assert [fault for fault in faults if fault] == []
    assert settings != []


def test_every_page_about_a_system_is_checked():
    pages = {path.stem for path in ROOT.glob("docs/coming-from/*.md")}

    assert pages == set(SYSTEMS)


@pytest.mark.parametrize(
    "call", ["client.sumbit(flow)", "client.submit(flow, ident=…)", "job.outcome", "Worker(lese=…)"]
)
def test_a_wrong_call_is_found_out(call):
    assert fault_of_call(call) is not None


def test_a_wrong_default_is_found_out():
    assert fault_of_call('Worker(lease="5m")', with_defaults=True) is not None
