"""Connections in turn to each of several servers, as a Service spreads them over the pods behind it."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Sequence
from typing import Self

Address = tuple[str, int]


class Splitter:
    """Listens on an address of loopback while it is entered; `taken` counts the connections that each server got."""

    def __init__(self, servers: Sequence[Address], host: str) -> None:
        self._servers, self._host = servers, host
        self._turn = itertools.cycle(range(len(servers)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="splitter", daemon=True)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.taken = [0] * len(servers)
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, self._host, 0), self._loop)
        self._server = listening.result(10)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def drop(self) -> None:
        """End every connection at once, so that the next request needs a new one."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(10)

    async def _drop(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = next(self._turn)
        self.taken[turn] += 1
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._servers[turn])
        except OSError:
            writer.close()
            return
        both = {writer, to_writer}
        self._writers |= both
        try:
            await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))
        finally:
            self._writers -= both


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
