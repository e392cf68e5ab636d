"""URLs, read so that there is one way only to read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import InvalidInput
from perdure.nodes.http import URL_MAX, destination


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
        assert destination("http://example.org:99/a?b=c").shown == "http://example.org:99"

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
        with pytest.raises(InvalidInput, match="query 'b'"):
            destination("http://example.org", {"b": value})

    def test_is_bounded(self):
        with pytest.raises(InvalidInput, match="more than"):
            destination("http://example.org", {"b": "x" * URL_MAX})
