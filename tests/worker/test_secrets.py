"""Secrets: resolved on the worker, used by bodies, and found in nothing that is kept."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Context,
    Flow,
    JobFailed,
    Retry,
    RunFailed,
    Worker,
    task,
)
from perdure.errors import MissingSecret
from perdure.model.failure import Cause, Failure
from perdure.tasks.result import failed, paused, skipped
from perdure.worker.events import AttemptRequeued, JobEvent
from perdure.worker.secrets import MASK, Masker, ResolvedSecrets, Secrets
from tests.support.refusal import fails, refused
from tests.support.tasks import echo
from tests.worker import process_tasks
from tests.worker.harness import Running

VALUE = 'pa"ss\\wörd-7731940286415/ü'
"""Has a part that JSON, URLs, repr and ASCII all write in another way."""
HIDDEN = ("7731940286415", "wörd", "w\\u00f6rd", "w%C3%B6rd")
"""Parts of it that must not be found anywhere, however the rest is written."""


def leaks_in(data: bytes) -> list[str]:
    return [part for part in HIDDEN if part.encode() in data]


def stored_bytes(url: str) -> dict[str, bytes]:
    """Everything that every table has, as bytes; and the files as they are on the disk."""
    path = url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        connection.text_factory = bytes
        tables = [
            row[0].decode()
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        found = {
            table: repr(connection.execute(f'SELECT * FROM "{table}"').fetchall()).encode()
            for table in tables
        }
        raw = {
            table: b"\n".join(
                value if isinstance(value, bytes) else str(value).encode()
                for row in connection.execute(f'SELECT * FROM "{table}"')
                for value in row
            )
            for table in tables
        }
    files = {str(file): file.read_bytes() for file in Path(path).parent.glob("*.db*")}
    return {**{f"repr of {name}": data for name, data in found.items()}, **raw, **files}


def kept_leaks(url: str) -> dict[str, list[str]]:
    """Where the secret is kept, and which parts of it."""
    found = {name: leaks_in(data) for name, data in stored_bytes(url).items()}
    return {name: leaks for name, leaks in found.items() if leaks}


@asynccontextmanager
async def serving(url: str, **settings: Any) -> AsyncIterator[tuple[AsyncClient, Running]]:
    """A client, and a worker that has the secret; it has stopped at the end."""
    running = await Running(Worker(url, **{"secrets": {"key": VALUE}, **settings})).start()
    async with AsyncClient(url) as client:
        yield client, running
    await running.stop()


def published_bytes(running: Running) -> bytes:
    return "\n".join(repr(event) for event in running.all(JobEvent)).encode()


@task
async def tell_all(how: str, ctx: AsyncContext = CONTEXT) -> Any:
    """Gives the secret away in one of many ways."""
    secret = ctx.secret("key")
    assert secret == VALUE
    ctx.progress(10, f"with {secret}", {"deep": [secret, {secret: 1}]})
    kept = await ctx.step("kept", lambda: {"token": f"Bearer {secret}"})
    assert kept == {"token": f"Bearer {MASK}"}
    match how:
        case "return":
            nested = json.dumps({"inner": secret})
            url = f"https://x?key={quote(secret)}"
            return {"plain": secret, "text": f"<{secret}>", "json": nested, "url": url, secret: 1}
        case "raise":
            raise ValueError(f"refused: {secret!r} and {secret}")
        case "cause":
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise RuntimeError(f"because of {json.dumps(secret)}") from error
        case "type":
            named = type(f"{secret}Error", (Exception,), {})
            raise named("below") from named("above")
        case "long":
            raise ValueError(("x" * 1990 + secret) * 4)
        case "fail":
            return failed(("x" * 1990 + secret) * 4)
        case "odd":
            raise OddError(secret)
        case "bytes":
            return secret.encode()
    raise AssertionError(how)


class OddError(Exception):
    """Says the secret even when it is asked for its attributes."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise RuntimeError(f"no class for {VALUE}")
        return super().__getattribute__(name)


WAYS = ["return", "raise", "cause", "type", "long", "fail", "odd", "bytes"]


class TestNothingIsKept:
    @pytest.mark.parametrize("how", WAYS)
    async def test_of_what_a_job_or_node_says(self, sqlite_url, how, caplog):
        caplog.set_level(logging.DEBUG)
        again = Retry(1, first=0)
        flow = Flow("telling").then(tell_all, retries=again).build()
        settings = {"tasks": [tell_all], "flows": [flow], "hold_off": "0s"}
        async with serving(sqlite_url, **settings) as (client, running):
            job = await client.enqueue(tell_all, how)
            run = await client.submit(flow, how)
            results = await asyncio.gather(job.result(10), run.result(10), return_exceptions=True)

        for result in results:
            assert MASK in str(result)
            assert leaks_in(str(result).encode()) == []
            notes = "".join(getattr(result, "__notes__", []))
            assert leaks_in(notes.encode()) == []
        assert kept_leaks(sqlite_url) == {}
        assert leaks_in(published_bytes(running)) == []
        assert leaks_in(caplog.text.encode()) == []

    async def test_of_checkpoints_skips_and_warnings(self, sqlite_url):
        @task
        async def pause(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            if ctx.last_pause is None:
                return paused({"key": ctx.secret("key")})
            return ctx.last_pause.checkpoint

        @task
        async def skip(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            return skipped(f"because of {ctx.secret('key')}")

        @task
        async def warn(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            return {"key": ctx.secret("key")}

        check = {"condition": {"property": "key", "op": "eq", "value": "x"}, "advisory": True}
        flow = (
            Flow("all")
            .fork(
                one=Flow().then(pause), two=Flow().then(skip), three=Flow().then(warn, check=check)
            )
            .join(lambda parts: parts, name="last")
            .build()
        )
        async with serving(sqlite_url, tasks=[pause], flows=[flow]) as (client, running):
            job = await client.enqueue(pause, None)
            run = await client.submit(flow)
            await running.emitted(AttemptRequeued, count=2)
            await client.jobs.resume(job.id)
            await client.runs.report(run.id, "pause", status="completed")
            found = [await job.result(10), await run.result(10)]

        assert found == [{"key": MASK}, {"one": {"key": MASK}, "three": {"key": MASK}}]
        assert kept_leaks(sqlite_url) == {}

    async def test_of_templates_and_inputs(self, sqlite_url):
        @task
        def call(header: str, key: str) -> Any:
            assert header == f"Bearer {VALUE}"
            assert key == VALUE
            return {"sent": header, "key": key}

        flow = (
            Flow("calling")
            .then(
                call,
                inputs={"mine": "secret.key"},
                config={"header": "Bearer {{ secret.key }}", "key": "{{ mine }}"},
            )
            .build()
        )
        async with serving(sqlite_url, flows=[flow]) as (client, _):
            found = await (await client.submit(flow)).result(10)

        assert found == {"sent": f"Bearer {MASK}", "key": MASK}
        assert kept_leaks(sqlite_url) == {}

    @pytest.mark.parametrize("how", ["return", "raise", "step"])
    async def test_of_what_a_process_says(self, sqlite_url, how, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_KEY", VALUE)
        tell = process_tasks.tell_in_process
        async with serving(sqlite_url, tasks=[tell], secrets=None) as (client, running):
            job = await client.enqueue(tell, how)
            results: Any = await asyncio.gather(job.result(30), return_exceptions=True)

        assert MASK in str(results[0])
        assert kept_leaks(sqlite_url) == {}
        assert leaks_in(published_bytes(running)) == []

    @pytest.mark.parametrize(
        "body, failed",
        [
            (process_tasks.report_deeply, "perdure.errors.PayloadNotSerializable"),
            (process_tasks.talk_nonsense, "msgspec.DecodeError"),
        ],
    )
    async def test_fails_a_process_whose_messages_cannot_be_processed(self, world, body, failed):
        """Finding 31: the attempt kept its slot and its lease for ever."""
        job = await world.enqueue(body, secrets={"key": VALUE})
        with pytest.raises(JobFailed) as caught:
            await job.result(30)
        assert caught.value.failure is not None
        assert caught.value.failure.type == failed

    async def test_of_names_that_are_stored_as_they_are(self, client, start_worker):
        @task
        async def name_step(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.step(f"call {ctx.secret('key')}", lambda: 1)

        @task
        async def name_pause(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.pause(f"call {ctx.secret('key')}")

        await start_worker(name_step, name_pause, secrets={"key": VALUE})

        for each in (name_step, name_pause):
            await fails(await client.enqueue(each), "worker.secret_in_name", JobFailed)


async def provide_later(name: str) -> str:
    return name


class TestProvider:
    async def test_is_the_environment_by_default(self, world, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_API_KEY", VALUE)

        @task
        def length(name: str, ctx: Context = CONTEXT) -> int:
            return len(ctx.secret(name))

        assert await (await world.enqueue(length, "api-key")).result(10) == len(VALUE)

    async def test_may_be_a_function_that_is_asked_once_an_attempt(self, world):
        asked: list[str] = []

        def provide(name: str) -> str | None:
            asked.append(name)
            return VALUE

        @task
        async def twice(ctx: AsyncContext = CONTEXT) -> bool:
            return ctx.secret("key") == ctx.secret("key")

        assert await (await world.enqueue(twice, secrets=provide)).result(10) is True
        assert asked == ["key"]

    async def test_that_has_not_the_secret_fails_the_job_for_good(self, world):
        tries: list[int] = []

        @task(retries=Retry(3, first=0))
        async def need(ctx: AsyncContext = CONTEXT) -> None:
            tries.append(1)
            ctx.secret("nothing")

        await fails(await world.enqueue(need, hold_off="0s"), "task.missing_secret", JobFailed)
        assert len(tries) == 1

    async def test_that_has_not_the_secret_of_a_template_fails_the_node(self, world):
        flow = Flow("missing").then(echo, config={"value": "{{ secret.x }}"}, on_missing="default")
        built = flow.build()
        await fails(await world.submit(built, secrets={}), "task.missing_secret", RunFailed)

    @pytest.mark.parametrize("provider", [7, "text", ["key"], provide_later])
    def test_must_be_one_that_is_not_async(self, memory_url, provider):
        with refused("worker.invalid_secrets", type=type(provider).__name__):
            Worker(memory_url, tasks=[echo], secrets=provider)

    @pytest.mark.parametrize(
        "value, code",
        [
            ("", "worker.secret_too_short"),
            ("abc", "worker.secret_too_short"),
            (1234567, "worker.secret_type"),
        ],
    )
    def test_must_give_texts_that_can_be_masked(self, value, code):
        with refused(code, secret="key"):
            Secrets({"key": value}).find("key")

    def test_that_does_not_know_a_name_says_what_to_do(self):
        with refused("task.missing_secret", MissingSecret):
            ResolvedSecrets(Secrets({})).find("key")


async def test_a_string_is_masked_by_characters(sqlite_url):
    """In Latin-1 the secret is also the beginning of another text, in UTF-8: half a character."""

    @task
    async def show(ctx: AsyncContext = CONTEXT) -> list[str]:
        secret = ctx.secret("key")
        assert ctx.mask("passé") == "passé"
        assert ctx.mask("passé".encode()) == MASK.encode() + b"\xa9"
        return [ctx.mask(f"a {secret} b"), ctx.mask("\ud800")[:0]]

    async with serving(sqlite_url, tasks=[show], secrets={"key": "passÃ"}) as (client, _):
        job = await client.enqueue(show)
        assert await job.result(20) == [f"a {MASK} b", ""]


class TestMasker:
    def test_leaves_what_has_no_secret_alone(self):
        data = b'{"a":[1.50,null,true]}'
        assert Masker(["secret"]).json(data) is data

    def test_masks_numbers_and_keys(self):
        masked = Masker(["123456", "name-x"]).value({"name-x": [123456, 1.5, True, "1234567"]})
        assert masked == {MASK: [MASK, 1.5, True, f"{MASK}7"]}

    @pytest.mark.parametrize(
        "secrets, text, masked",
        [
            (["AAAA-BBBB", "BBBB-CCCCCCCC"], "AAAA-BBBB-CCCCCCCC", MASK),
            (["BBBB-CCCCCCCC", "AAAA-BBBB"], "x AAAA-BBBB-CCCCCCCC y", f"x {MASK} y"),
            (["abab"], "ababab", MASK),
            (["abab"], "xabababab-ababx", f"x{MASK}-{MASK}x"),
            (["abcabca"], "abcabcabca-abcabcabcabc", f"{MASK}-{MASK}bc"),
            (["abcd", "wxyz"], "abcdwxyzabcd", MASK * 3),
            (["abcd", "xxabcdxx"], "abcdxxabcdxxabcd", MASK * 3),
            (["abcd", "xxabcdxx"], "a xxabcdxx b", f"a {MASK} b"),
            (["-----BEGIN KEY-----\nAbCdEfGhIjKl\n-----END"], "at AbCdEfGhIjKl.", f"at {MASK}."),
        ],
    )
    def test_masks_all_of_secrets_that_overlap_and_lines_of_long_ones(self, secrets, text, masked):
        assert Masker(secrets).text(text) == masked
        assert Masker(secrets).raw(text.encode()) == masked.encode()

    @pytest.mark.parametrize(
        "secret, text, masked",
        [
            ("a" * 2_000, "a" * 2_000_000, MASK),
            ("ab" * 1_000, "ab" * 2_000_000, MASK),
            ("secret-1", "secret-1 " * 300_000, f"{MASK} " * 300_000),
        ],
        ids=["of one letter", "of two letters", "repeated"],
    )
    def test_masks_a_secret_that_overlaps_itself_in_linear_time(self, secret, text, masked):
        started = time.process_time()
        assert Masker([secret]).text(text) == masked
        assert time.process_time() - started < 5

    def test_masks_a_secret_of_many_lines_quickly(self):
        """Finding 4: a pattern of all its forms took 5 s per megabyte, and held the interpreter."""
        digests = [hashlib.sha384(b"%d" % number).digest() for number in range(400)]
        lines = [base64.b64encode(digest).decode() for digest in digests]
        masker = Masker(["\n".join(lines)])
        text, short = "lorem ipsum dolor " * 60_000 + lines[7], ["lorem"] * 100_000
        started = time.process_time()
        assert masker.text(text).endswith(f"dolor {MASK}")
        assert masker.raw(text.encode()).endswith(b"dolor " + MASK.encode())
        assert masker.value([*short, lines[7]]) == [*short, MASK]
        many = [text[:80]] * 12_000  # most forms would fit into them
        assert json.loads(masker.json(json.dumps([*many, lines[7]]).encode())) == [*many, MASK]
        assert [masker.raw(b"lorem") for _ in short] == [b"lorem"] * 100_000
        assert not any(masker.is_in("lorem") for _ in short)
        assert time.process_time() - started < 10

    @pytest.mark.parametrize("before", [b"", b"a", b"ab", b"user:"])
    @pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
    def test_masks_in_base64_of_a_longer_text(self, before, encode):
        """Finding 10: bytes in results are stored as base64, as are passwords in requests."""
        masked = Masker([VALUE]).text(encode(before + VALUE.encode() + b"?").decode())

        assert MASK in masked
        assert len(masked) <= len(MASK) + 12

    def test_masks_json_that_was_read_in_another_charset(self):
        """Finding 10: a service that echoes a request need not decode it as UTF-8."""
        sent = json.dumps([VALUE], ensure_ascii=False)
        echoed = {"body": sent, "latin-1": sent.encode().decode("latin-1")}

        masked = Masker([VALUE]).json(json.dumps(echoed, ensure_ascii=False).encode())

        assert leaks_in(masked) == []

    @pytest.mark.parametrize("is_ascii", [True, False], ids=["ascii", "utf-8"])
    @pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
    def test_masks_json_within_json_that_is_read_as_text_or_bytes(self, is_ascii, charset):
        """Finding 10: such as the echo of a request, in a response of another type."""
        sent = json.dumps({"token": VALUE}, ensure_ascii=is_ascii).encode().decode(charset)
        echoed = json.dumps({"body": sent}, ensure_ascii=is_ascii)

        assert leaks_in(Masker([VALUE]).text(echoed).encode()) == []
        assert leaks_in(Masker([VALUE]).raw(b"\xff" + echoed.encode())) == []

    def test_masks_every_part_of_a_failure(self):
        failure = Failure(
            type="errors.secretError",
            message="no secret",
            traceback="in secret",
            causes=(Cause(type="secretCause", message="a secret"),),
        )

        assert Masker(["secret"]).failure(failure) == Failure(
            type=f"errors.{MASK}Error",
            message=f"no {MASK}",
            traceback=f"in {MASK}",
            causes=(Cause(type=f"{MASK}Cause", message=f"a {MASK}"),),
        )

    def test_keeps_json_valid_that_is_too_deep_to_look_through(self):
        deep = b"[" * 900 + b'"secret"' + b"]" * 900
        assert b"secret" not in Masker(["secret"]).json(deep)
