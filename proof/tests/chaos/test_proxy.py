"""The proxy injects the requested faults, and nothing else."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from proof.chaos.proxy import HOST, Proxy

SOON_SECONDS = 10

Finishes = tuple[StreamReader, StreamWriter]
Dial = Callable[[Proxy], Awaitable[Finishes]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connect to a proxy, until the end of the test."""
    dialled: list[StreamWriter] = []

    async def connect(proxy: Proxy) -> Finishes:
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        dialled.append(writer)
        return reader, writer

    yield connect
    for writer in dialled:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy in front of an echo server."""

    async def echo(reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(1024):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.open()
    yield proxy
    await proxy.close()
    server.close()


async def test_a_proxy_passes_on_in_both_directions(proxy: Proxy, dial: Dial) -> None:
    reader, writer = await dial(proxy)

    assert await echoed(reader, writer, b"hello") == b"hello"


async def test_a_proxy_ends_what_it_cuts_and_takes_new_connections(
    proxy: Proxy, dial: Dial
) -> None:
    reader, writer = await dial(proxy)
    await echoed(reader, writer, b"hello")

    [connection] = proxy.chosen(lambda: True)
    connection.cut()

    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.readexactly(1), SOON_SECONDS)
    reader, writer = await dial(proxy)
    assert await echoed(reader, writer, b"again") == b"again"


async def test_a_proxy_keeps_a_half_open_connection_silent_until_it_is_released(
    proxy: Proxy, dial: Dial
) -> None:
    reader, writer = await dial(proxy)
    await echoed(reader, writer, b"hello")

    [connection] = proxy.chosen(lambda: True)
    connection.hold()
    writer.write(b"late")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.2)
    connection.release()

    assert await asyncio.wait_for(reader.readexactly(4), SOON_SECONDS) == b"late"


async def test_a_proxy_in_front_of_nothing_refuses(dial: Dial) -> None:
    unused = await asyncio.start_server(lambda *_: None, HOST, 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    await unused.wait_closed()
    proxy = Proxy(port)
    await proxy.open()

    reader, _ = await dial(proxy)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.readexactly(1), SOON_SECONDS)

    await proxy.close()


async def echoed(reader: StreamReader, writer: StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    return await asyncio.wait_for(reader.readexactly(len(data)), SOON_SECONDS)
