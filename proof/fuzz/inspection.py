"""What a store holds in the end: a whole history, and no secret."""

from __future__ import annotations

from collections.abc import Callable

from perdure.store.contract import Store
from perdure.verify import Finding, finding_text, verify_store
from proof.fuzz.contents import contents
from proof.fuzz.leaks import look_for_secrets


def nobody(_: Finding) -> bool:
    return False


async def inspect_store(
    url: str, store: Store, *, is_excused: Callable[[Finding], bool] = nobody
) -> None:
    """Everything that was accepted was written whole, and nothing of it tells a secret."""
    look_for_secrets("the store", await contents(url, is_all=True), url)
    findings = [finding for finding in await verify_store(store) if not is_excused(finding)]
    assert not findings, "\n".join(map(finding_text, findings))
