"""Grants: a flow that was loaded as data uses no secret that its worker did not grant to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import CONTEXT, Context, Failure, Flow, Grant, RunFailed, Worker, run_flow, task
from perdure.flows.built import BuiltFlow
from perdure.nodes.http import Http
from perdure.testing import Kit
from tests.nodes.contexts import Service, reply, serving
from tests.support.refusal import failing, refused
from tests.support.tasks import echo
from tests.worker.conftest import World

SECRETS = {"key": "open sesame", "other": "another one"}
LOOPBACK = Http(allow=["127.0.0.1", "localhost"])


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


def asking(config: dict[str, Any], **more: Any) -> BuiltFlow:
    """A flow with one request, loaded as data."""
    node = {"id": "ask", "type": "http", "config": config, **more}
    return Flow.from_dict({"flow": "asks", "nodes": [node]}, node_types=[LOOPBACK])


def naming(text: str = "{{ secret.key }}") -> BuiltFlow:
    """A flow that passes a secret to a task, loaded as data."""
    node = {"id": "say", "task": "echo", "config": {"value": text}}
    return Flow.from_dict({"flow": "names", "nodes": [node]}, tasks=[echo])


async def is_not_granted(
    world: World, flow: BuiltFlow, input: Any = None, **settings: Any
) -> Failure:
    run = await world.submit(flow, input, **{"secrets": SECRETS, **settings})
    with failing("task.secret_not_granted", RunFailed) as caught:
        await run.result(20)
    failure: Failure = caught.value.failure
    return failure


async def test_a_schema_does_not_see_the_secret(world, service):
    """Finding 5: the schema of an input told a secret, one pattern after the other."""
    schema = {"properties": {"key": {"type": "string", "pattern": "^open"}}, "required": ["key"]}
    config = {"url": service.url(), "headers": {"X-Key": "{{ key }}"}}
    flow = asking(config, inputs={"key": "secret.key"}, input_schema=schema)
    grants = [Grant("key", hosts=[f"http://127.0.0.1:{service.port}"])]
    run = await world.submit(flow, secrets=SECRETS, grants=grants)
    with failing("node.invalid_input", RunFailed):
        await run.result(20)
    assert service.asked == []


class TestHosts:
    @pytest.mark.parametrize(
        "grants",
        [
            [],
            [Grant("other", hosts=["*"])],
            [Grant("key", hosts=["127.0.0.1"])],  # HTTPS only
            [Grant("key", hosts=["http://127.0.0.1:1"])],
            [Grant("key", hosts=["http://127.0.0.1"])],
            [Grant("key", flows=["others"], hosts=["*"])],
            [Grant("key", flows=["asks@0123456789abcdef"], hosts=["*"])],
            [Grant("key", tasks=["*", "http"])],
        ],
    )
    async def test_only_exactly_what_is_granted(self, world, service, grants):
        """Finding 5: a loaded flow sent any secret to any host."""
        config = {"url": service.url(), "headers": {"X-Key": "{{ secret.key }}"}}
        await is_not_granted(world, asking(config), grants=grants)
        assert service.asked == []

    @pytest.mark.parametrize("flows", [["*"], ["asks"], ["other", "asks"]])
    async def test_what_is_granted_is_sent(self, world, service, flows):
        """Finding 5: with a grant, flows as data work as before."""
        config = {"url": service.url("/x"), "headers": {"X-Key": "{{ secret.key }}"}}
        grant = Grant("key", flows=flows, hosts=[f"HTTP://127.0.0.1:{service.port}"])

        run = await world.submit(asking(config), secrets=SECRETS, grants=[grant])

        assert (await run.result(20))["status"] == 200
        assert service.asked[0].header("x-key") == "open sesame"

    async def test_every_secret_of_a_request_is_checked(self, world, service):
        """Finding 5: a grant of one secret is none of another in the same request."""
        config = {"url": service.url(), "body": ["{{ secret.key }}", "{{ secret.other }}"]}
        grants = [Grant("key", hosts=["*"]), Grant("other", hosts=["api.example.com"])]

        failure = await is_not_granted(world, asking(config), grants=grants)

        assert service.asked == []
        assert "'other'" in failure.message

    async def test_the_rendered_host_counts(self, world, service):
        """Finding 5: a template in the host, filled in by the submitter."""
        url = f"http://{{{{ host }}}}:{service.port}/"
        flow = asking(
            {"url": url, "headers": {"X-Key": "{{ token }}"}},
            inputs={"token": "secret.key", "host": "input.host"},
        )
        grant = Grant("key", hosts=[f"http://localhost:{service.port}"])

        await is_not_granted(world, flow, {"host": "127.0.0.1"}, grants=[grant])
        assert service.asked == []

    async def test_a_secret_in_the_host_is_not_reported(self, world):
        """Finding 5: a secret as a part of the host would be sent to name servers."""
        config = {"url": "https://{{ secret.key }}.example.com/"}
        grant = Grant("key", hosts=["example.com"])

        secrets = {"key": "sesame"}
        failure = await is_not_granted(world, asking(config), grants=[grant], secrets=secrets)
        assert "sesame" not in failure.message

    async def test_redirects_are_not_followed(self, world, service):
        """Finding 5: a granted host must not pass the secret on by a redirect."""
        service.answer = lambda handler: reply(handler, 302, Location=service.url("/elsewhere"))
        config = {"url": service.url(), "body": "{{ secret.key }}", "status": {"3xx": "moved"}}
        grant = Grant("key", hosts=[f"http://127.0.0.1:{service.port}"])

        run = await world.submit(asking(config), secrets=SECRETS, grants=[grant])

        assert (await run.result(20))["status"] == 302
        assert len(service.asked) == 1


class TestTasks:
    @pytest.mark.parametrize("grants", [[], [Grant("key", hosts=["*"])]])
    async def test_only_what_is_granted_to_tasks(self, world, grants):
        """Finding 5: a task could be given any secret; a grant of hosts is for requests only."""
        await is_not_granted(world, naming(), grants=grants)

    @pytest.mark.parametrize("tasks", [["echo"], ["*"]])
    async def test_what_is_granted_is_passed(self, world, tasks):
        """Finding 5: with a grant, tasks get the secret."""
        grant = Grant("key", flows=["names"], tasks=tasks)
        run = await world.submit(naming("<{{ secret.key }}>"), secrets=SECRETS, grants=[grant])

        assert await run.result(20) == "<***>"

    async def test_a_secret_that_is_not_granted_is_not_looked_up(self, world):
        """Finding 5: a loaded flow must not find out which secrets there are."""
        asked: list[str] = []
        run = await world.submit(naming(), secrets=asked.append)

        with pytest.raises(RunFailed):
            await run.result(20)
        assert asked == []

    async def test_a_task_may_look_up_its_own(self, world):
        """Finding 5: what a task's code does with secrets is its author's decision."""

        @task
        def own(ctx: Context = CONTEXT) -> int:
            return len(ctx.secret("key"))

        flow = Flow.from_dict({"flow": "own", "nodes": [{"id": "own", "task": "own"}]}, tasks=[own])

        assert await (await world.submit(flow, secrets=SECRETS)).result(20) == 11


class TestOrigin:
    async def test_a_flow_built_in_python_needs_no_grant(self, world):
        """Finding 5: the code that a worker is given is trusted with its secrets."""
        flow = Flow("names").then(echo, name="say", config={"value": "{{ secret.key }}"}).build()

        assert await (await world.submit(flow, secrets=SECRETS)).result(20) == "***"

    @pytest.mark.parametrize("is_loaded_first", [True, False])
    async def test_given_twice(self, client, start_worker, is_loaded_first):
        """Finding 5: an equal flow in Python vouches for the one that was loaded, in any order."""
        flow = Flow("names").then(echo, name="say", config={"value": "{{ secret.key }}"}).build()
        flows = [naming(), flow] if is_loaded_first else [flow, naming()]
        assert flows[0].graph.text == flows[1].graph.text
        await start_worker(flows=flows, secrets=SECRETS)

        assert await (await client.submit(flow)).result(20) == "***"

    async def test_of_children_is_their_own(self, world):
        """Finding 5: a child flow that was loaded as data stays so in a parent from Python."""
        await is_not_granted(world, Flow("parent").then(naming()).build())

    def test_survives_a_round_trip_as_data(self):
        """Finding 5: dumping and loading a flow makes it data."""
        flow = Flow("names").then(echo, name="say", config={"value": "{{ secret.key }}"}).build()
        loaded = Flow.from_dict(flow.to_dict(), tasks=[echo])

        assert (flow.is_loaded, loaded.is_loaded) == (False, True)
        assert flow.graph.text == loaded.graph.text

    def test_counts_without_a_store_too(self):
        """Finding 5: ``run_flow`` and the testing kit take the same grants."""
        with failing("task.secret_not_granted", RunFailed):
            run_flow(naming(), secrets=SECRETS)
        grants = [Grant("key", tasks=["echo"])]
        assert run_flow(naming(), secrets=SECRETS, grants=grants) == "***"
        with Kit(secrets=SECRETS) as kit:
            kit.submit(naming()).assert_failed("may not use secret 'key'")
        with Kit(secrets=SECRETS, grants=grants) as kit:
            assert kit.submit(naming()).result() == "***"


class TestGrant:
    def test_must_have_a_target(self):
        """Finding 5: a grant without a place is a mistake, not a grant of everything."""
        with refused("grant.no_target", secret="key"):
            Grant("key", flows=["ship"])

    @pytest.mark.parametrize(
        "host",
        ["", "a b", "https://a/path", "a@b", "ftp://a", "*.a.com", "a:port", "https://", "ü.com"],
    )
    def test_must_name_hosts(self, host):
        """Finding 5: what is not a host would never be granted, or too much."""
        with refused("grant.invalid_host" if host else "argument.name"):
            Grant("key", hosts=[host])

    @pytest.mark.parametrize(
        "host, origin",
        [
            ("API.example.com", "https://api.example.com"),
            ("api.example.com:443", "https://api.example.com"),
            ("https://api.example.com:8443/", "https://api.example.com:8443"),
            ("http://localhost:80", "http://localhost"),
            ("[::1]:8080", "https://[::1]:8080"),
            ("*", "*"),
        ],
    )
    def test_hosts_mean_origins(self, host, origin):
        """Finding 5: HTTPS unless plain HTTP is granted."""
        assert Grant("key", hosts=[host]).hosts == (origin,)
        if host != "*":
            url = host if "://" in host else f"https://{host}"
            assert Http().destinations_of({"url": url}) == (origin,)

    def test_as_an_option(self):
        """Finding 5: how operators grant secrets on the command line."""
        assert Grant.parse("key,flow=a,flow=b,task=t,host=h") == Grant(
            "key", flows=["a", "b"], tasks=["t"], hosts=["h"]
        )

    @pytest.mark.parametrize(
        "text, code",
        [
            ("key", "grant.no_target"),
            ("key,hosts=a", "grant.invalid"),
            ("key,host", "grant.invalid"),
            (",host=a", "argument.name"),
            ("key,host=", "argument.name"),
        ],
    )
    def test_as_an_option_that_is_invalid(self, text, code):
        """Finding 5: an unreadable grant is refused."""
        with refused(code):
            Grant.parse(text)

    @pytest.mark.parametrize("grants", ["key", ["key"], [{"secret": "key"}]])
    def test_of_a_worker_must_be_grants(self, memory_url, grants):
        """Finding 5: a worker takes grants and nothing else."""
        with refused("argument.type"):
            Worker(memory_url, tasks=[echo], grants=grants)
