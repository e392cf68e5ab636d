"""The URL of a store: what it may say, and what it shows."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidStoreUrl
from perdure.store.postgres.address import parse_address, place_of


class TestParseAddress:
    def test_takes_our_options_out_and_passes_the_others_on(self):
        address = parse_address(
            "postgresql://ann@db:6543/work?schema=jobs&pool=9&listen=off&sslmode=require"
        )

        assert address.dsn == "postgresql://ann@db:6543/work?sslmode=require"
        assert (address.schema, address.pool_max, address.is_listening) == ("jobs", 9, False)

    def test_has_defaults_for_our_options(self):
        address = parse_address("postgres://db/work")

        assert (address.schema, address.pool_max, address.is_listening) == ("perdure", 5, True)

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://ann:s3cret@db/work",
            "postgresql://db/work?user=ann&password=s3cret",
            "postgresql://ann:s%203cret@db/work?schema=a&sslpassword=s3cret",
        ],
    )
    def test_shows_no_password(self, url):
        address = parse_address(url)

        assert "3cret" not in address.url
        assert "3cret" in address.dsn

    @pytest.mark.parametrize(
        "options",
        [
            "shema=typo",
            "schema=",
            "schema=no-plain-name",
            "schema=" + "x" * 60,
            "pool=0",
            "pool=many",
            "pool=-1",
            "statement_cache=1e9",
            "listen=maybe",
            "connect_timeout=0",
            "answer_timeout=0",
            "answer_timeout=never",
        ],
    )
    def test_refuses_options_that_cannot_be_used(self, options):
        name = options.partition("=")[0]

        with pytest.raises(InvalidStoreUrl, match=name):
            parse_address(f"postgresql://db/work?{options}")

    @pytest.mark.parametrize("url", ["postgresql://db:port/work", "postgresql://[::1/work"])
    def test_refuses_a_host_that_cannot_be_read(self, url):
        with pytest.raises(InvalidStoreUrl):
            parse_address(url)

    def test_shows_no_password_in_a_refusal(self):
        with pytest.raises(InvalidStoreUrl) as refusal:
            parse_address("postgresql://ann:s3cret@db/work?shema=typo")

        assert "s3cret" not in str(refusal.value)

    def test_shows_no_password_that_looks_like_a_port(self):
        assert parse_address("postgresql://ann:123/s3cret@db/work").url == (
            "postgresql://ann:***@db/work"
        )

    def test_takes_several_hosts(self):
        address = parse_address("postgresql://one:1,two:2/work?target_session_attrs=primary")

        assert address.dsn.startswith("postgresql://one:1,two:2/work")


class TestPlaceOf:
    def test_is_the_same_for_all_who_connect_to_the_same_tables(self):
        first = parse_address("postgres://ann:a@db/work?pool=3")
        second = parse_address("postgresql://ben:b@db/work?schema=perdure&listen=off")

        assert place_of(first) == place_of(second)

    def test_differs_between_schemas_databases_and_servers(self):
        urls = [
            "postgresql://db/work",
            "postgresql://db/work?schema=other",
            "postgresql://db/other",
            "postgresql://other/work",
            "postgresql:///work?host=/run/other",
        ]

        assert len({place_of(parse_address(url)) for url in urls}) == len(urls)
