"""Links within the documentation lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, all_pages

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
