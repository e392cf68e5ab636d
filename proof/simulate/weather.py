"""How bad things are in one history: drawn once from its seed, so that some are calm, some wild."""

from __future__ import annotations

import random
from dataclasses import dataclass

LATENCIES = (0.0, 0.0005, 0.02, 0.4)
NEVER, RARELY, OFTEN = 0.0, 0.01, 0.08


@dataclass(slots=True)
class Weather:
    """Chances that something goes wrong, for one store call or one hint."""

    latency: float = 0.0
    """Seconds that a call takes at most, each way."""
    lost_before: float = 0.0
    """The connection breaks on the way there; the backend tries again."""
    lost_after: float = 0.0
    """It breaks on the way back: the write counts, and is tried again."""
    late: float = 0.0
    """What is lost on the way there arrives after all, when it was given up or tried again."""
    silence: float = 0.0
    """Seconds at most until it is noticed that it broke: nothing comes, and nothing fails."""
    given_up: float = 0.0
    """Having broken, it is not tried again: ``StoreError``, and nobody knows what was written."""
    refused: float = 0.0
    """``StoreError``, and nothing is written."""
    out_until: float = 0.0
    """Nobody's call is answered before, also of those who come meanwhile."""
    hint_lost: float = 0.0
    hint_twice: float = 0.0
    hint_unnamed: float = 0.0
    hint_delay: float = 0.0
    """Seconds that a hint takes at most."""

    def calm(self) -> None:
        """Let nothing go wrong from now on."""
        calm = Weather(latency=min(self.latency, 0.02))
        for name in Weather.__dataclass_fields__:
            setattr(self, name, getattr(calm, name))


def drawn_weather(draw: random.Random) -> Weather:
    def chance() -> float:
        return draw.choice((NEVER, NEVER, RARELY, OFTEN))

    return Weather(
        latency=draw.choice(LATENCIES),
        lost_before=chance(),
        lost_after=chance(),
        late=draw.choice((NEVER, 0.5)),
        silence=draw.choice((0.0, 0.0, 0.0, 10.0)),
        given_up=draw.choice((NEVER, NEVER, 0.5)),
        refused=draw.choice((NEVER, NEVER, RARELY)),
        hint_lost=draw.choice((0.0, 0.0, 0.1, 0.5, 1.0)),
        hint_twice=draw.choice((0.0, 0.2)),
        hint_unnamed=draw.choice((0.0, 0.2)),
        hint_delay=draw.choice((0.0, 0.01, 2.0)),
    )
