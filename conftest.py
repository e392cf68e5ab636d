"""The stores that tests run on: a fresh one per test, on one PostgreSQL server per session.

Under pytest-xdist the controller starts the server and tells its workers the URL.
"""

from __future__ import annotations

import gc
import secrets
import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.postgres_schemas import Schemas, create_tables, drop_schema, with_query
from tests.postgres_server import PostgresServer, PostgresUnavailable, SharedServer
from tests.postgres_types import cache_introspection
from tests.store_selection import STORES, stores_of_test

# On a busy machine a slow example says nothing about the code; the timeout per test remains.
# The same examples in every run, so that a failure is never a matter of luck.
settings.register_profile("perdure", deadline=None, derandomize=True)
settings.load_profile("perdure")

SHARED_SERVER = pytest.StashKey[SharedServer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stores",
        choices=("one", "rest", "all"),
        default="one",
        help="clients' and workers' tests on one store each (the default), on the others, on all",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts us in the background (`nohup make test &`) has us ignore SIGINT, and what
    # is ignored stays so in every process below. Tests that send it must not depend on that. Each
    # process of pytest-xdist comes through here too, in its main thread.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cache_introspection()
    told_by_the_controller = getattr(config, "workerinput", {}).get("postgres_url")
    config.stash[SHARED_SERVER] = SharedServer(told_by_the_controller)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    try:
        node.workerinput["postgres_url"] = node.config.stash[SHARED_SERVER].url()
    except PostgresUnavailable as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.spreading import Spreading

    return Spreading(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each test of clients and workers one store, the same in every run, unless it is marked
    ``every_store``; or, with ``--stores=rest``, exactly what that leaves out."""
    wanted = config.getoption("--stores")
    is_named = any("::" in each for each in config.args) or config.getoption("keyword")
    if wanted == "all" or (wanted == "one" and is_named):
        return
    chosen: list[pytest.Item] = []
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        store = parameters.get("store_url")
        is_on_each = item.get_closest_marker("every_store") is not None
        is_its_own = store is None or is_on_each or store in stores_of_test(item.nodeid, store)
        if is_its_own is (wanted == "one"):
            chosen.append(item)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The files that take longest, so that the suite stays quick."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > 10:
        terminalreporter.section("slowest files")
        for file, took in sorted(seconds.items(), key=lambda each: -each[1])[:10]:
            terminalreporter.write_line(f"{took:7.1f}s {file}")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: searched for garbage again and again, it is slow."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[SHARED_SERVER].close()


@pytest.fixture(scope="session")
def postgres_server_url(pytestconfig: pytest.Config) -> str:
    """The server that all tests share; tests use ``postgres_url``, which is theirs alone."""
    return pytestconfig.stash[SHARED_SERVER].url()


@pytest.fixture(scope="session")
def postgres_schemas(postgres_server_url: str) -> Iterator[Schemas]:
    schemas = Schemas(postgres_server_url)
    yield schemas
    schemas.close()


@pytest.fixture
def postgres_url(postgres_server_url: str, postgres_schemas: Schemas) -> Iterator[str]:
    """A PostgreSQL schema of the test's own, with all tables and no rows."""
    schema = postgres_schemas.take()
    yield with_query(postgres_server_url, schema=schema)
    postgres_schemas.give_back(schema)


@pytest.fixture
def bare_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """A PostgreSQL schema of the test's own; it is not created, but dropped afterwards."""
    schema = f"t_{secrets.token_hex(8)}"
    yield with_query(postgres_server_url, schema=schema)
    drop_schema(postgres_server_url, schema)


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A running server that this test alone may stop, crash and restart."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def memory_url() -> str:
    return f"memory://{secrets.token_hex(8)}"


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables and no rows; to copy it is quicker than to create them."""
    path = tmp_path_factory.mktemp("sqlite") / "empty.db"
    create_tables(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(bare_sqlite_url: str, empty_sqlite: Path, tmp_path: Path) -> str:
    """A SQLite database of the test's own, with all tables and no rows."""
    shutil.copyfile(empty_sqlite, tmp_path / "work.db")
    return bare_sqlite_url


@pytest.fixture
def bare_sqlite_url(tmp_path: Path) -> str:
    """A SQLite database of the test's own, which is not created."""
    return f"sqlite:///{tmp_path}/work.db"


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store, once for every backend."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
