"""URLs: which file they mean, and what is refused before anything is touched."""

from __future__ import annotations

import os

import pytest

from perdure.errors import InvalidStoreUrl
from perdure.store.sqlite.address import place_at
from perdure.store.sqlite.store import SqliteStore


class TestPath:
    def test_is_relative_after_three_slashes(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        assert place_at("sqlite:///data/work.db").path == os.path.realpath("data/work.db")

    def test_is_absolute_after_four(self, tmp_path):
        assert place_at(f"sqlite:///{tmp_path}/work.db").path == f"{tmp_path}/work.db"

    def test_may_contain_what_urls_must_quote(self):
        assert place_at("sqlite:////data/a%20b%3Fc%23.db").path == "/data/a b?c#.db"

    def test_is_the_same_for_a_symbolic_link(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "data")

        linked = place_at(f"sqlite:///{tmp_path}/link/work.db")

        assert linked.key == place_at(f"sqlite:///{tmp_path}/data/work.db").key

    async def test_keeps_its_meaning_for_a_twin_after_a_change_of_directory(
        self, tmp_path, monkeypatch
    ):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        store = SqliteStore("sqlite:///work.db")

        monkeypatch.chdir(tmp_path / "elsewhere")
        target = store.clone()
        await target.open()
        await target.close()

        assert (tmp_path / "work.db").exists()


class TestOptions:
    def test_have_defaults(self):
        place = place_at("sqlite:///work.db")

        assert (place.prefix, place.synchronous) == ("perdure_", "normal")

    def test_set_the_prefix_and_how_it_syncs(self):
        place = place_at("sqlite:///work.db?prefix=jobs_&synchronous=full")

        assert (place.prefix, place.synchronous) == ("jobs_", "full")


@pytest.mark.parametrize(
    "url, reason",
    [
        ("sqlite://work.db", "three slashes"),
        ("sqlite:work.db?", "three slashes"),
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///work.db?mode=memory", "no option 'mode'"),
        ("sqlite:///work.db?prefix=", "prefix"),
        ("sqlite:///work.db?prefix=jobs; DROP TABLE x", "prefix"),
        ("sqlite:///work.db?prefix=sqlite_", "prefix"),
        ("sqlite:///work.db?synchronous=off", "normal or full"),
        ("sqlite:///work.db#1", "%23"),
    ],
)
def test_refuses_a_url_that_cannot_be_used(url, reason):
    with pytest.raises(InvalidStoreUrl, match=reason):
        place_at(url)
