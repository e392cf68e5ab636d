"""The books whose words are counted: made up, the same every time."""

from __future__ import annotations

import random
from pathlib import Path

from perdure.demo.tasks import PAGE_END

TITLES = (
    "alice", "beowulf", "candide", "dracula", "emma", "faust", "germinal", "hamlet", "iliad",
    "jane-eyre", "kim", "lolly-willowes", "moby-dick", "nostromo", "odyssey", "persuasion",
    "quixote", "rebecca", "silas-marner", "tristram", "ulysses", "villette", "walden", "zadig",
)  # fmt: skip
_WORDS = (
    "the", "sea", "was", "calm", "and", "a", "lamp", "burned", "late", "over", "pages", "that",
    "nobody", "had", "read", "for", "years",
)  # fmt: skip


class Library:
    """Books in a folder, and how many words each really has."""

    def __init__(self, folder: Path, count: int, pages: int) -> None:
        chance = random.Random(7)
        self.words: dict[str, int] = {}
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for title in TITLES[:count]:
            lengths = [chance.randint(150, 350) for _ in range(pages)]
            texts = [" ".join(chance.choices(_WORDS, k=length)) for length in lengths]
            (folder / f"{title}.txt").write_text(PAGE_END.join(texts), encoding="utf-8")
            self.words[title] = sum(lengths)

    @property
    def titles(self) -> list[str]:
        return list(self.words)

    def path(self, title: str) -> str:
        return str(self._folder / f"{title}.txt")
