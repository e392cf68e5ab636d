"""The site has every page and every public name, and fetches nothing from elsewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import perdure
from perdure import testing
from tests.docs.pages import ROOT, Page, all_pages, page
from tests.support.public_names import PUBLIC

API = [each for each in all_pages() if each.name.startswith("docs/reference/api/")]
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


class Settings(yaml.SafeLoader):
    """Reads what mkdocs reads, and calls nothing that the file names."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def settings() -> dict[str, Any]:
    # A SafeLoader with one tag more, which makes it a text.
    loaded = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Settings)
    assert isinstance(loaded, dict)
    return loaded


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [leaf for each in inner for leaf in leaves(each)]


def described() -> list[str]:
    return [name for each in API for name in DIRECTIVE.findall(each.text)]


def test_the_navigation_has_every_page_once():
    pages = [each.name.removeprefix("docs/") for each in all_pages() if each.name != "README.md"]
    assert sorted(leaves(settings()["nav"])) == sorted(pages)


def test_nothing_is_fetched_from_elsewhere():
    made_from = settings()
    assert made_from["theme"]["font"] is False
    assert "://" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_described_once(name):
    described_as = getattr(perdure, name)
    is_error = isinstance(described_as, type) and issubclass(described_as, BaseException)
    assert described().count(f"perdure.{name}") == (0 if is_error else 1)


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_of_the_testing_kit_is_described_once(name):
    assert described().count(f"perdure.testing.{name}") == 1


def test_errors_are_described_as_a_whole_and_nothing_that_is_not_there():
    there = {f"perdure.{name}" for name in PUBLIC}
    kit = {f"perdure.testing.{name}" for name in testing.__all__}
    assert set(described()) - there - kit == {"perdure.errors"}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name):
    assert inspect.getdoc(getattr(perdure, name)), f"perdure.{name} has no docstring"


def test_the_picture_of_a_run_is_there():
    pictures = re.findall(r'<img src="([^"]+)"', page("README.md").text)
    assert pictures != []
    assert [each for each in pictures if not (ROOT / each).is_file()] == []


# Links within the documentation lead somewhere.


LINKING = [*all_pages(), Page(ROOT / "CHANGELOG.md"), Page(ROOT / "CONTRIBUTING.md")]
NAMES = [page.name for page in LINKING]


@pytest.mark.parametrize("page", LINKING, ids=NAMES)
def test_every_link_of_a_page_leads_somewhere(page):
    broken = [link for link in page.links if not leads_somewhere(page, link)]
    assert broken == []


def test_the_index_links_every_page():
    index = Page(ROOT / "docs" / "index.md")
    linked = {target_of(index, link) for link in index.links}
    missing = {page.path for page in all_pages()} - linked - {index.path}
    assert missing == set()


def leads_somewhere(page: Page, link: str) -> bool:
    if link.startswith("https://"):
        return True
    target = target_of(page, link)
    anchor = link.partition("#")[2]
    return target.is_file() and (not anchor or anchor in Page(target).anchors)


def target_of(page: Page, link: str) -> Path:
    path = link.partition("#")[0]
    return (page.path.parent / path).resolve() if path else page.path
