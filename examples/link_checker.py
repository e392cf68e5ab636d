"""Check every link on some web pages, with rate limits and retries, without losing any.

    python examples/link_checker.py https://example.org/ https://docs.python.org/3/

Pages and links are jobs in ``links.db``. Stop it with Ctrl-C and start it again: it keeps earlier
results and checks only the rest. Each host gets at most five requests per second, for any number of
workers, and a host that answers 429 is left alone for as long as it asks.
"""

from __future__ import annotations

import argparse
import urllib.error
import urllib.request
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from perdure import Client, Rate, Retry, RetryLater, Worker, task

STORE = "sqlite:///links.db"


def host_of(url: str) -> str:
    return urlsplit(url).netloc


@task(
    queue="links",
    retries=Retry(3, first="1s", on=(ConnectionError, TimeoutError)),
    timeout="30s",
    limits=[Rate(5, per="1s", key=host_of)],
)
def check(url: str) -> int:
    """Return the HTTP status of a link."""
    request = urllib.request.Request(url, headers={"User-Agent": "perdure-link-checker"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 429:
                seconds = int(error.headers.get("Retry-After", "5"))
                raise RetryLater(
                    "the host asks for a pause", after=seconds, limit=host_of(url)
                ) from error
            return error.code
    except urllib.error.URLError as error:
        raise ConnectionError(f"{url}: {error.reason}") from error


@task(queue="pages", retries=2, timeout="30s")
def read_page(url: str) -> list[str]:
    """Return the links on a page, without duplicates."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read().decode(answer.headers.get_content_charset() or "utf-8", "replace")
    parser = LinkParser(url)
    parser.feed(text)
    return sorted(parser.links)


class LinkParser(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get("href") if tag == "a" else None
        if address is not None:
            link = urldefrag(urljoin(self._base, address)).url
            if urlsplit(link).scheme in ("http", "https"):
                self.links.add(link)


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the links of web pages.")
    parser.add_argument("pages", nargs="+", metavar="URL")
    parser.add_argument("--store", default=STORE)
    options = parser.parse_args()
    worker = Worker(options.store, tasks=[read_page, check], concurrency=20).start()
    try:
        with Client(options.store) as client:
            broken = report(client, options.pages)
    finally:
        worker.shutdown()
        worker.join()
    raise SystemExit(1 if broken else 0)


def report(client: Client, pages: list[str]) -> int:
    """Print each broken link and return their number."""
    reading = [client.enqueue(read_page.options(fingerprint=page), page) for page in pages]
    links = sorted({link for page in client.jobs.results(reading) for link in page})
    found: dict[str, Any] = {
        link: client.jobs.find_result(check, [link], default=None) for link in links
    }
    unknown = [link for link, status in found.items() if status is None]
    # A link that an interrupted run left in the queue is not enqueued again.
    checks = client.enqueue_many(check.options(fingerprint=lambda url: url), unknown)
    found |= zip(unknown, client.jobs.results(checks, return_errors=True), strict=True)
    broken = 0
    for link, status in found.items():
        if not isinstance(status, int) or status >= 400:
            broken += 1
            print(f"broken: {link} ({status})")
    print(f"{len(links)} links checked, {broken} broken")
    return broken


if __name__ == "__main__":
    main()
