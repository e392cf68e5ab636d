"""Definitions of flows, kept with their runs."""

from __future__ import annotations

from perdure.store.contract import Store
from tests.conformance.run_builders import FLOW, NAMESPACE, OTHER_NAMESPACE, VERSION


class TestRunsSaveDefinition:
    async def test_leaves_a_version_that_is_known_as_it_is(self, store: Store) -> None:
        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"first")

        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"second")

        assert await store.runs.get_definition(NAMESPACE, FLOW, VERSION) == b"first"


class TestRunsGetDefinition:
    async def test_tells_namespaces_flows_and_versions_apart(self, store: Store) -> None:
        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"mine")
        await store.runs.save_definition(NAMESPACE, FLOW, "v2", b"newer")
        await store.runs.save_definition(NAMESPACE, "returns", VERSION, b"other")
        await store.runs.save_definition(OTHER_NAMESPACE, FLOW, VERSION, b"theirs")

        assert await store.runs.get_definition(NAMESPACE, FLOW, VERSION) == b"mine"
        assert await store.runs.get_definition(NAMESPACE, FLOW, "v2") == b"newer"
        assert await store.runs.get_definition(NAMESPACE, "returns", VERSION) == b"other"
        assert await store.runs.get_definition(OTHER_NAMESPACE, FLOW, VERSION) == b"theirs"

    async def test_is_none_for_what_was_never_saved(self, store: Store) -> None:
        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"mine")

        assert await store.runs.get_definition(NAMESPACE, FLOW, "v2") is None
        assert await store.runs.get_definition(OTHER_NAMESPACE, FLOW, VERSION) is None
