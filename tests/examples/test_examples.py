"""The examples, run as the programs they are."""

from __future__ import annotations

import http.server
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from perdure import Client
from tests.examples.programs import run_example


class Site(http.server.ThreadingHTTPServer):
    """A small web site with a page of links, one of them broken and one busy at first."""

    LINKS = ("/good", "/busy", "/good#part", "/gone", "mailto:ann@example.org")

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SiteHandler)
        self.requests: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class SiteHandler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.requests[self.path] += 1
        if self.path == "/":
            self.answer(200, "".join(f'<a href="{link}">x</a>' for link in Site.LINKS))
        elif self.path == "/busy" and self.server.requests["/busy"] == 1:
            self.answer(429, "", {"Retry-After": "0"})
        else:
            self.answer(404 if self.path == "/gone" else 200, "")

    def answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site
        site.shutdown()
        thread.join()


class TestLinkChecker:
    def test_reports_what_is_broken_and_asks_again_where_it_was_told_to(self, site, tmp_path):
        done = run_example("link_checker.py", f"{site.url}/", cwd=tmp_path)

        assert done.returncode == 1, done.stderr
        assert done.stdout.splitlines() == [
            f"broken: {site.url}/gone (404)",
            "3 links checked, 1 broken",
        ]
        assert site.requests == {"/": 1, "/good": 1, "/busy": 2, "/gone": 1}

    def test_asks_only_for_what_it_does_not_know_yet(self, site, tmp_path):
        first = run_example("link_checker.py", f"{site.url}/", cwd=tmp_path)
        again = run_example("link_checker.py", f"{site.url}/", cwd=tmp_path)

        assert again.stdout == first.stdout
        assert site.requests == {"/": 2, "/good": 1, "/busy": 2, "/gone": 1}


class TestOutbox:
    def test_an_order_and_its_letter_are_written_both_or_neither(self, tmp_path):
        done = run_example("outbox.py", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        taken, confirmed = done.stdout.splitlines()[:4], done.stdout.splitlines()[4:]
        assert taken == [
            "took order 1: lamp",
            "took order 2: chair",
            "refused: no chair is left",
            "took order 3: lamp",
        ]
        assert [line.split(", key")[0] for line in confirmed] == [
            "order 1 (lamp) confirmed",
            "order 2 (chair) confirmed",
            "order 3 (lamp) confirmed",
        ]
        with Client(f"sqlite:///{tmp_path}/shop.db") as client:
            assert client.jobs.count(group="orders") == 3
