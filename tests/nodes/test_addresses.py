"""Which addresses may be reached, and URLs, which have one reading only."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidInput
from perdure.nodes.http import URL_MAX, destination
from perdure.nodes.network import Allowed, embedded, is_public
from tests.support.refusal import refused

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00:1450:4001::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2606:4700::5efe:8.8.8.8",
]


NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "2606:4700::5efe:127.0.0.1",
    "2606:4700::200:5efe:10.0.0.1",
    "fd12:3456::5efe:8.8.8.8",
    "fe80::200:5efe:8.8.8.8",
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "fd00:ec2::254",
    "100.100.100.200",
]


class TestIsPublic:
    @pytest.mark.parametrize("text", PUBLIC)
    def test_lets_the_internet_through(self, text):
        assert is_public(ip_address(text))

    @pytest.mark.parametrize("text", NOT_PUBLIC)
    def test_refuses_everything_else(self, text):
        """Finding 13: also ISATAP forms, and the metadata addresses of clouds."""
        assert not is_public(ip_address(text))


class TestAllowed:
    @pytest.mark.parametrize(
        "entry, host, address",
        [
            ("127.0.0.1", "x", "127.0.0.1"),
            ("127.0.0.0/8", "x", "127.1.2.3"),
            ("127.0.0.1/32", "x", "::ffff:127.0.0.1"),
            ("10.1.2.3/8", "x", "10.200.0.1"),
            ("::1", "x", "::1"),
            ("fd00::/8", "x", "fd12::1"),
            ("internal.example", "INTERNAL.example", "10.0.0.1"),
            ("Internal.Example.", "internal.example", "10.0.0.1"),
            ("*", "x", "169.254.169.254"),
        ],
    )
    def test_permits_what_is_named(self, entry, host, address):
        assert Allowed([entry]).permits(host, ip_address(address))

    @pytest.mark.parametrize(
        "entry, host, address",
        [
            ("127.0.0.1", "x", "127.0.0.2"),
            ("127.0.0.1", "127.0.0.1.evil.example", "10.0.0.1"),
            ("internal.example", "x.internal.example", "10.0.0.1"),
            ("internal.example", "internal.example.evil", "10.0.0.1"),
            ("10.0.0.0/8", "x", "::1"),
        ],
    )
    def test_permits_nothing_else(self, entry, host, address):
        assert not Allowed([entry]).permits(host, ip_address(address))

    def test_permits_what_is_public_without_being_asked(self):
        assert Allowed().permits("example.org", ip_address("93.184.216.34"))

    @pytest.mark.parametrize("entry", ["", "  ", "http://x", "10.0.0.0/99", "a b", "x:80", "a@b"])
    def test_refuses_entries_that_mean_nothing(self, entry):
        with refused("http.not_allowable", InvalidInput):
            Allowed([entry])


class TestAddresses:
    """Which addresses may be reached."""

    def test_an_address_inside_another_is_found(self):
        assert embedded(ip_address("64:ff9b::10.0.0.1")) == ip_address("10.0.0.1")
        assert embedded(ip_address("2606:4700::1111")) is None


# URLs, read so that there is one way only to read them.


class TestDestination:
    @pytest.mark.parametrize(
        "url, host, port, target",
        [
            ("http://example.org", "example.org", 80, "/"),
            ("https://Example.org/a/b?c=d#e", "example.org", 443, "/a/b?c=d"),
            ("https://example.org:8443?x", "example.org", 8443, "/?x"),
            ("http://[::1]:8080/", "::1", 8080, "/"),
            ("http://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1", 80, "/"),
            ("http://bücher.example/ä?ö=ü", "xn--bcher-kva.example", 80, "/%C3%A4?%C3%B6=%C3%BC"),
            ("http://example.org./a%20b", "example.org", 80, "/a%20b"),
            ("HTTP://example.org//evil.example/", "example.org", 80, "//evil.example/"),
            ("http://2130706433/", "2130706433", 80, "/"),
        ],
    )
    def test_is_read_from_a_url(self, url, host, port, target):
        found = destination(url)
        assert (found.host, found.port, found.target) == (host, port, target)

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "example.org",
            "//example.org/",
            "file:///etc/passwd",
            "ftp://example.org/",
            "gopher://example.org/",
            "javascript:alert(1)",
            "http://",
            "http:///path",
            "http://user@example.org/",
            "http://user:pass@example.org/",
            "http://example.org@127.0.0.1/",
            "http://@127.0.0.1/",
            "http://127.0.0.1\\@example.org/",
            "http://example.org\\.evil.example/",
            "http://example.org:0/",
            "http://example.org:65536/",
            "http://example.org:-1/",
            "http://example.org:http/",
            "http://example.org:80:80/",
            "http://exa mple.org/",
            "http://example.org/a b",
            "http://example.org/\r\nX-Evil: 1",
            "http://example.org/\t",
            "\nhttp://example.org/",
            "http://example.org/\x00",
            "http://[fe80::1%25eth0]/",
            "http://[::1/",
            "http://[example.org]/",
            "http://example..org/",
            "http://.example.org/",
            "http://exämple" + "x" * 300 + ".org/",
            "http://" + "a." * 200 + "org/",
            "http://example.org/" + "x" * URL_MAX,
            "http://%31%32%37.0.0.1/",
            "http://example.org%2f@evil.example/",
            "http://127.0.0.1#@example.org:99999/?" + "\x7f",
        ],
    )
    def test_is_refused_where_the_url_could_mislead(self, url):
        with pytest.raises(InvalidInput):
            destination(url)

    @pytest.mark.parametrize(
        "url",
        [
            "http://ann:sesame@example.org/",
            "http://exa mple.org/sesame",
            "ftp://example.org/?key=sesame",
            "http://example..org/sesame",
            "http://example.org:0/sesame",
            "http://[sesame/",
        ],
    )
    def test_is_refused_without_telling_what_was_given(self, url):
        with pytest.raises(InvalidInput) as caught:
            destination(url)
        assert "sesame" not in str(caught.value)

    def test_is_shown_without_what_may_be_a_key(self):
        assert destination("http://example.org:99/a?b=c").origin == "http://example.org:99"

    @pytest.mark.parametrize(
        "url, header",
        [
            ("http://example.org/", "example.org"),
            ("http://example.org:443/", "example.org:443"),
            ("https://[::1]:8443/", "[::1]:8443"),
        ],
    )
    def test_names_the_host_with_a_port_that_is_not_usual(self, url, header):
        assert destination(url).host_header == header

    @given(st.text(max_size=60))
    def test_is_either_read_or_refused(self, text):
        for url in (text, f"http://{text}", f"http://example.org/{text}"):
            try:
                found = destination(url)
            except InvalidInput:
                continue
            sent = f"GET {found.target} HTTP/1.1 Host: {found.host_header}"
            assert sent.isascii()
            assert sent.isprintable()
            assert found.target.startswith("/")
            assert " " not in found.target


class TestQuery:
    @pytest.mark.parametrize(
        "query, target",
        [
            ({}, "/?a=1"),
            ({"b": 2, "c": "x y&z"}, "/?a=1&b=2&c=x+y%26z"),
            ({"b": [1, "two"], "c": None}, "/?a=1&b=1&b=two"),
            ({"b": True, "c": 1.5}, "/?a=1&b=true&c=1.5"),
            ({"#": "\r\n"}, "/?a=1&%23=%0D%0A"),
        ],
    )
    def test_is_added_to_that_of_the_url(self, query, target):
        assert destination("http://example.org?a=1", query).target == target

    @pytest.mark.parametrize("value", [{"x": 1}, [[1]]])
    def test_takes_texts_and_numbers_only(self, value):
        with refused("http.query_type", InvalidInput, name="b", parameter="b"):
            destination("http://example.org", {"b": value})

    def test_is_bounded(self):
        with refused("http.target_too_long", InvalidInput):
            destination("http://example.org", {"b": "x" * URL_MAX})
