"""What operators do to jobs and see of a store, and the table of operations."""

from __future__ import annotations

import ast
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest

import perdure
from perdure import (
    AsyncClient,
    Client,
    FingerprintTaken,
    Flow,
    IllegalTransition,
    InvalidInput,
    Job,
    JobNotFound,
    QueueAlreadyPaused,
    QueueNotPaused,
    ScheduleAlreadyPaused,
    ScheduleNotPaused,
    Status,
    Worker,
    task,
)
from perdure.client import sync
from perdure.diagnostics import Action
from perdure.model.facts import RunStats
from perdure.model.run import RunStatus
from perdure.operations.catalog import GROUPS, LOCAL, OPERATIONS
from perdure.operations.insight.health import Health
from perdure.operations.operation import Role, parameter_help
from perdure.store.contract import Store
from tests.client.flows import add, echo, embed
from tests.client.harness import job_that_is
from tests.support.refusal import refused

# Operations: declared once, and the same on every interface.


SYNC = {
    name: next(
        each
        for each in vars(sync).values()
        if inspect.isclass(each) and each.__name__.lower() == f"sync{name}"
    )
    for name in GROUPS
}

every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    [_, *own] = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in own]


class TestDeclarations:
    def test_are_grouped_as_they_are_named(self):
        for operation in OPERATIONS.values():
            method = vars(GROUPS[operation.group])[operation.verb]
            assert method.operation is operation

    def test_are_complete(self):
        """Everything public of a group is an operation."""
        for name, group in GROUPS.items():
            public = {each for each in vars(group) if not each.startswith("_")}
            assert {f"{name}.{each}" for each in public} <= OPERATIONS.keys()

    @every_operation
    def test_have_a_summary_of_one_line_and_explain_every_parameter(self, operation):
        assert operation.summary.endswith(".")
        assert "\n" not in operation.summary
        for name in operation.parameters:
            assert parameter_help(operation, name)

    @every_operation
    def test_have_arguments_that_json_can_carry(self, operation):
        assert msgspec.json.schema(operation.arguments())
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(b'{"misspelled":1}', type=operation.arguments())

    def test_decode_arguments_by_name(self):
        arguments = OPERATIONS["runs.cancel"].arguments()
        decoded: Any = msgspec.json.decode(b'{"id":"a","reason":"late"}', type=arguments)
        assert (decoded.id, decoded.reason, decoded.compensate) == ("a", "late", False)

    @every_operation
    def test_do_not_let_callers_say_who_they_are(self, operation):
        names = operation.arguments().__struct_fields__
        assert {"by", "roles"}.isdisjoint(names)
        assert {*names, *operation.principal} == operation.parameters.keys()

    def test_of_a_decision_get_who_decides_from_the_caller(self):
        assert OPERATIONS["approvals.decide"].principal == ("by", "roles")
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(
                b'{"id":"a:b","decision":"approve","by":"the-cfo"}',
                type=OPERATIONS["approvals.decide"].arguments(),
            )

    def test_need_an_operator_where_they_replace_the_work_of_others(self):
        submit = OPERATIONS["runs.submit"]
        assert submit.role_of({"flow": "orders"}) is Role.SUBMITTER
        assert submit.role_of({"flow": "orders", "on_conflict": "use_existing"}) is Role.SUBMITTER
        assert submit.role_of({"flow": "orders", "on_conflict": "replace"}) is Role.OPERATOR
        for name in ("jobs.enqueue", "jobs.enqueue_many"):
            enqueue = OPERATIONS[name]
            assert enqueue.role_of({"task": "add"}) is Role.SUBMITTER
            assert enqueue.role_of({"task": "add", "options": None}) is Role.SUBMITTER
            replacing = {"task": "add", "options": {"on_conflict": "replace"}}
            assert enqueue.role_of(replacing) is Role.OPERATOR

    @every_operation
    def test_declare_a_role_for_every_way_to_replace(self, operation):
        """Whatever a parameter is called: a value "replace" or "cancel" ends work of others."""
        assert not (operation.writes and operation.role is Role.VIEWER)
        if operation.role in (Role.OPERATOR, Role.ADMIN):
            return
        hints = get_type_hints(operation.method)
        choices = {name: set(words_of(hints[name])) for name in operation.parameters}
        for name, hint in hints.items():
            for each in (hint, *get_args(hint)):
                if is_typeddict(each):
                    inner = get_type_hints(each)
                    choices |= {f"{name}.{key}": set(words_of(inner[key])) for key in inner}
        for path, words in choices.items():
            for word in words & {"replace", "cancel"}:
                assert operation.role_by_value[path][word] is Role.OPERATOR

    def test_name_what_streams_yield(self):
        assert OPERATIONS["jobs.list"].result == perdure.Page[Job]
        assert OPERATIONS["runs.watch"].result is perdure.EventRecord

    def test_have_one_name_on_every_interface(self):
        cancel = OPERATIONS["runs.cancel"]
        assert (cancel.route, cancel.tool) == ("POST /runs/{id}/cancel", "runs_cancel")
        assert OPERATIONS["runs.list"].route == "GET /runs"
        assert OPERATIONS["schedules.get"].route == "GET /schedules/{name}"
        assert OPERATIONS["runs.count"].route == "GET /runs:count"

    def test_have_routes_of_which_one_matches_a_path(self):
        """Whatever an id is: percent-encoded, it is one segment that is not empty."""
        for one, other in combinations(OPERATIONS.values(), 2):
            assert not overlaps(one.route, other.route), (one.route, other.route)
        assert overlaps("GET /runs/count", "GET /runs/{id}")


def words_of(hint: Any) -> Iterator[str]:
    """The texts that a parameter may be."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    for each in get_args(hint):
        yield from words_of(each)


def overlaps(one: str, other: str) -> bool:
    """Whether there is a request that both routes match."""
    (method, path), (other_method, other_path) = one.split(), other.split()
    pairs = list(zip(path.split("/"), other_path.split("/"), strict=False))
    return (
        method == other_method
        and path.count("/") == other_path.count("/")
        and all(a == b or a.startswith("{") or b.startswith("{") for a, b in pairs)
    )


class TestSync:
    @every_operation
    def test_takes_what_its_async_counterpart_takes(self, operation):
        method = getattr(SYNC[operation.group], operation.verb)
        assert parameters(method) == parameters(operation.method)
        assert method.__doc__ == operation.method.__doc__
        assert not inspect.iscoroutinefunction(method)

    def test_has_all_groups(self):
        client = AsyncClient("memory://groups")
        for name, group in GROUPS.items():
            assert isinstance(getattr(client, name), group)
            assert isinstance(getattr(Client, name), property)

    def test_group_keeps_the_client_open(self, store_url):
        jobs = Client(store_url).jobs
        assert list(jobs.list()) == []

    def test_refuses_misspelled_options(self, store_url):
        with Client(store_url) as client:
            for call in (
                lambda: client.jobs.list(statuss="failed"),  # type: ignore[call-arg]
                lambda: client.runs.cancel("a", reasn="x"),  # type: ignore[call-arg]
                lambda: client.schedules.save("a", "b", timezon="UTC"),  # type: ignore[call-arg]
            ):
                with pytest.raises(TypeError, match="unexpected keyword argument"):
                    call()
            with refused("argument.unknown", InvalidInput):
                client.submit("a", on_conflit="fail")  # type: ignore[call-overload]


class TestActions:
    def test_name_operations_and_their_parameters(self):
        known: Mapping[str, set[str]] = {
            **{name: {*each.parameters, "namespace"} for name, each in OPERATIONS.items()},
            **{name: set(each) for name, each in LOCAL.items()},
        }
        found = list(suggested())

        assert {"runs.retry", "runs.fork", "worker.run", "runs.cancel"} <= {
            name for name, _ in found
        }
        for name, arguments in found:
            assert name in known
            assert arguments <= known[name], name


def suggested() -> Iterator[tuple[str, set[str]]]:
    """The operations that the library suggests, with the names of the arguments it gives."""
    for path in Path(perdure.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == Action.__name__:
                    yield from read_action(node, function)
        for node in tree.body:
            call = node.value if isinstance(node, ast.Assign) else None
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == Action.__name__:
                yield from read_action(call, tree)


def read_action(call: ast.Call, around: ast.AST) -> Iterator[tuple[str, set[str]]]:
    name, *rest = [*call.args, *(each.value for each in call.keywords)]
    arguments = {
        str(constant.value)
        for each in rest
        for constant in (*getattr(each, "keys", ()), *getattr(each, "elts", ()))
        if isinstance(constant, ast.Constant)
    }
    if isinstance(name, ast.Constant):
        yield str(name.value), arguments
        return
    for each in ast.walk(around):  # one of several that are named nearby
        if isinstance(each, ast.Constant) and each.value in OPERATIONS:
            yield str(each.value), arguments


# What operators do: abort, disable, enable, retry, resume, pause; and what they see.


class TestChanges:
    @pytest.mark.parametrize(
        "operation, before, after",
        [
            ("cancel", Status.WAITING, Status.CANCELLED),
            ("cancel", Status.ACTIVE, Status.ABORTING),
            ("cancel", Status.COMPLETED, Status.COMPLETED),
            ("disable", Status.WAITING, Status.DISABLED),
            ("enable", Status.DISABLED, Status.WAITING),
            ("retry", Status.FAILED, Status.WAITING),
            ("resume", Status.PAUSED, Status.WAITING),
        ],
    )
    async def test_say_what_the_job_was_and_is(self, client, worker, operation, before, after):
        job = await job_that_is(before, client, worker)
        change = await getattr(client.jobs, operation)(job.id)
        assert (change.before, change.after) == (before, after)
        assert await job.status() is after
        assert operation != "cancel" or change.was_finished is (before is Status.COMPLETED)
        assert len(await worker.claim_all()) == (1 if after is Status.WAITING else 0)

    @pytest.mark.parametrize(
        "operation, status",
        [
            ("enable", Status.WAITING),
            ("disable", Status.CANCELLED),
            ("retry", Status.WAITING),
            ("resume", Status.WAITING),
        ],
    )
    async def test_are_refused_in_a_status_they_do_not_apply_to(
        self, client, worker, operation, status
    ):
        job = await job_that_is(status, client, worker)
        with refused("job.illegal_transition", IllegalTransition, job_id=job.id):
            await getattr(client.jobs, operation)(job.id)

    async def test_are_refused_when_the_fingerprint_is_taken_by_now(self, client):
        handle = await client.enqueue(add.options(fingerprint="one"), 1)
        await handle.cancel()
        await client.enqueue(add.options(fingerprint="one"), 1)
        with pytest.raises(FingerprintTaken):
            await handle.retry()


class TestJobs:
    async def test_are_found_by_what_they_are(self, client, worker):
        failed = await client.enqueue(add.options(group="run-1"), 1)
        await worker.fail(await worker.claim(), ValueError())
        other = await client.enqueue(embed.options(group="run-1"), "x")
        await client.enqueue(echo, 1)

        assert [job.id for job in await client.jobs.list(status="failed")] == [failed.id]
        assert [job.id for job in await client.jobs.list(queue="embeddings")] == [other.id]
        assert [job.id for job in await client.jobs.list(task=embed)] == [other.id]
        assert [job.id for job in await client.jobs.list(task="add")] == [failed.id]
        assert [job.id for job in await client.jobs.list(group="run-1")] == [other.id, failed.id]
        assert await client.jobs.count(group="run-1") == 2
        assert await client.jobs.count(status=Status.WAITING, group="run-1") == 1


# Namespaces: a client sees and touches only its own rows; an operator's client sees all.


Act = Callable[[AsyncClient, str], Awaitable[Any]]

BY_ID: dict[str, Act] = {
    "job": lambda client, id: client.jobs.get(id),
    "failures": lambda client, id: client.jobs.attempts(id),
    "abort": lambda client, id: client.jobs.cancel(id),
    "disable": lambda client, id: client.jobs.disable(id),
    "enable": lambda client, id: client.jobs.enable(id),
    "retry": lambda client, id: client.jobs.retry(id),
    "resume": lambda client, id: client.jobs.resume(id),
    "result": lambda client, id: client.jobs.handle(id).result(timeout=0),
    "status": lambda client, id: client.jobs.handle(id).status(),
    "watch": lambda client, id: anext(client.jobs.handle(id).watch()),
}

OF_ONE_NAMESPACE: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "enqueue": lambda client: client.enqueue(add, 1),
    "enqueue_many": lambda client: client.enqueue_many(add, [1]),
    "result_of": lambda client: client.jobs.find_result(add, [1]),
    "abort_group": lambda client: client.jobs.cancel_group("run-1"),
    "pause_queue": lambda client: client.queues.pause("default"),
    "resume_queue": lambda client: client.queues.resume("default"),
}


@pytest.fixture
async def team_a(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, namespace="team-a") as client:
        yield client


@pytest.fixture
async def team_b(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, namespace="team-b") as client:
        yield client


@pytest.fixture
async def operator(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, namespace="*") as client:
        yield client


class TestANamespace:
    @pytest.mark.parametrize("act", BY_ID.values(), ids=BY_ID)
    async def test_hides_its_jobs_from_others_as_if_they_were_not_there(self, team_a, team_b, act):
        handle = await team_a.enqueue(add, 1)
        for id in (handle.id, "nobody"):
            with refused("job.not_found", JobNotFound, job_id=id):
                await act(team_b, id)
        assert await handle.status() is Status.WAITING


class TestAnOperator:
    @pytest.mark.parametrize("act", OF_ONE_NAMESPACE.values(), ids=OF_ONE_NAMESPACE)
    async def test_is_refused_what_needs_one_namespace(self, operator, act):
        with refused("client.namespace_required", InvalidInput):
            await act(operator)
        assert await operator.jobs.count() == 0


@task
def refuse(value: int) -> int:
    raise ValueError("no")


asks = Flow("asks").then(add, config={"a": 1, "b": 2}).wait_for_signal("go").build()
fails = Flow("fails").then(refuse).build()


@pytest.fixture
def sync_client(store_url: str) -> Iterator[Client]:
    with Client(store_url) as sync_client:
        yield sync_client


@pytest.fixture
def everywhere(sync_client: Client, store_url: str) -> Iterator[Client]:
    with Client(store_url, namespace="*") as everywhere:
        yield everywhere


def wrong(health: Health) -> list[str]:
    return [f"{each.severity} {each.about}" for each in health.findings if each.severity != "ok"]


class TestPauses:
    """Finding 38: what is paused or resumed twice was acknowledged, and its author dropped."""

    @pytest.mark.parametrize(
        "group, paused, not_paused",
        [
            ("queues", QueueAlreadyPaused, QueueNotPaused),
            ("schedules", ScheduleAlreadyPaused, ScheduleNotPaused),
        ],
    )
    @pytest.mark.parametrize("again", ["ann", "bob", None])
    async def test_of_queues_and_schedules_are_refused_twice_and_say_whose_counts(
        self, client, group, paused, not_paused, again
    ):
        operations = getattr(client, group)
        await client.schedules.save("nightly", echo, every="1h", args=[1])
        await operations.pause("nightly", by="ann")

        with refused(f"{group[:-1]}.already_paused", paused, name="nightly", paused_by="ann") as no:
            await operations.pause("nightly", by=again)

        [record] = [each for each in await operations.list() if "nightly" in str(each)]
        assert (record.is_paused, record.paused_by) == (True, "ann")
        assert dict(no.value.diagnostic.args)["paused_at"] == record.paused_at
        await operations.resume("nightly")
        with refused(f"{group[:-1]}.not_paused", not_paused, name="nightly"):
            await operations.resume("nightly")


class TestHealth:
    def test_a_new_store_is_well_and_has_no_worker(self, sync_client):
        health = sync_client.store.health()
        assert health.is_well
        assert wrong(health) == ["warning workers"]
        assert health.url == sync_client.store_url

    def test_work_without_a_worker_is_an_error_wherever_it_is(
        self, sync_client, everywhere, store_url
    ):
        with Client(store_url, namespace="team-a") as other:
            other.enqueue(add, 1, 2)
        assert sync_client.store.health().is_well
        assert wrong(everywhere.store.health()) == ["error workers"]


decides = Flow("decides").approve("Ship it?", name="check").build()


class TestRunCounts:
    """An alarm on dead letters must not miss failed runs, which leave none."""

    def test_are_in_queue_stats_and_health(self, sync_client, everywhere, store_url):
        assert sync_client.queues.list().runs == ()
        for flow in (fails, asks, decides):
            sync_client.submit(flow, 1 if flow is fails else None)
        with Client(store_url, namespace="team-a") as other:
            other.submit(decides)
        for namespace in ("default", "team-a"):
            worker = Worker(store_url, flows=[fails, asks, decides], namespace=namespace)
            worker.run_until_idle()

        page = sync_client.queues.list()
        waits = {RunStatus.WAITING: 2, RunStatus.FAILED: 1}
        assert page.runs == (RunStats(namespace="default", counts=waits, waiting_for_people=1),)
        assert [each.namespace for each in everywhere.queues.list().runs] == ["default", "team-a"]
        codes = {each.code: each.args for each in sync_client.store.health().findings}
        assert codes["health.runs_failed"] == {"count": 1}
        assert codes["health.runs_waiting"] == {"count": 1}
        assert "health.dead_letters" not in codes


class TestPrune:
    def test_removes_what_was_counted(self, sync_client):
        sync_client.submit(asks, None, id="live")
        sync_client.submit(asks, None, id="over")
        sync_client.runs.cancel("over")
        job = sync_client.enqueue(add, 1, 2)
        job.cancel()

        found = sync_client.store.count_finished(older_than=0)
        assert (found.jobs, found.runs) == ({Status.CANCELLED: 1}, {RunStatus.CANCELLED: 1})
        assert sync_client.store.prune(older_than="1h") == 0
        assert sync_client.store.prune(older_than=0, status="completed") == 0
        assert sync_client.store.prune(older_than=0, status="cancelled") == 2

        assert [run.id for run in sync_client.runs.list()] == ["live"]
        assert sync_client.store.count_finished(older_than=0).jobs == {}

    def test_removes_disabled_jobs_only_on_request(self, sync_client):
        job = sync_client.enqueue(add, 1, 2)
        sync_client.jobs.disable(job.id)

        assert sync_client.store.prune(older_than=0) == 0
        assert sync_client.store.count_finished(older_than=0).jobs == {}
        assert sync_client.store.prune(older_than="1h", status="disabled") == 0
        found = sync_client.store.count_finished(older_than=0, status="disabled")
        assert found.jobs == {Status.DISABLED: 1}
        assert sync_client.store.prune(older_than=0, status="disabled") == 1
        assert sync_client.jobs.count() == 0

    def test_takes_more_than_one_batch(self, store_url, monkeypatch):
        monkeypatch.setattr("perdure.operations.store.PRUNE_BATCH", 2)
        with Client(store_url) as sync_client:
            sync_client.enqueue_many(add.options(group="all"), [(1, 2)] * 5)
            sync_client.jobs.cancel_group("all")
            assert sync_client.store.prune(older_than=0) == 5

    def test_refuses_what_is_no_end(self, sync_client, everywhere):
        ends = ("cancelled", "completed", "dead", "disabled", "failed", "skipped")
        with refused("argument.choice", InvalidInput, name="status", choices=ends):
            sync_client.store.prune(older_than=0, status="running")
        with refused("argument.duration", InvalidInput, name="older_than"):
            sync_client.store.count_finished(older_than="soon")
        with refused("client.namespace_required", InvalidInput, operation="store.prune"):
            everywhere.store.prune(older_than=0)
