"""What is asked of a store: counted, and disturbed where a test wants it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

Interleave = Callable[[], Awaitable[object]]


class WatchedCalls:
    """``after[name]`` runs once, when that method has done its work and before it answers.

    Methods in ``hangs`` never answer. ``answers[name]`` makes another answer of that method's,
    once.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.arguments: dict[str, list[Any]] = {}
        self.after: dict[str, Interleave] = {}
        self.answers: dict[str, Callable[[Any], Any]] = {}
        self.hangs: set[str] = set()

    async def count(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.calls[name] += 1
        self.arguments.setdefault(name, []).append(args)
        if name in self.hangs:
            await asyncio.Event().wait()
        answer = await method(*args, **kwargs)
        if (interleave := self.after.pop(name, None)) is not None:
            await interleave()
        change = self.answers.pop(name, None)
        return answer if change is None else change(answer)
