"""A stand-in for docker and podman: containers are processes on this machine, images nothing.

Understands what the ``container`` node type asks for. Its folder holds one folder a container, and
every command line that it was called with.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
VALUED = {"--name", "--network", "--security-opt", "--cpus", "--memory", "--memory-swap"}
VALUED |= {"--pids-limit", "--env-file", "--filter", "--format", "-t"}
FOLDER = Path(os.environ["CONTAINER_STAND_IN"])


def main(operation: str, *arguments: str) -> int:
    with (FOLDER / "called.jsonl").open("a") as called:
        called.write(json.dumps([operation, *arguments]) + "\n")
    if (FOLDER / "broken").exists():
        print("cannot connect", file=sys.stderr)
        return 1
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name, _, value = rest.pop(0).partition("=")
        options.setdefault(name, []).append(value or (rest.pop(0) if name in VALUED else ""))
    if operation == "create":
        return create(options, rest)
    if operation == "ps":
        wanted = options["--filter"][0].removeprefix("name=")
        print("\n".join(each.name for each in FOLDER.glob("*/") if wanted in each.name))
        return 0
    place = FOLDER / arguments[-1]
    if not place.is_dir():
        print("no such container", file=sys.stderr)
        return 1
    {"start": start, "container": inspect, "stop": stop, "rm": remove, "logs": logs}[operation](
        place
    )
    return 0


def create(options: dict[str, list[str]], rest: list[str]) -> int:
    place = FOLDER / options["--name"][0]
    if rest[0] == "missing":
        print("no such image", file=sys.stderr)
        return 125
    try:
        place.mkdir()
    except FileExistsError:
        return 125
    env = {"PATH": os.environ["PATH"]}
    for path in options.get("--env-file", []):
        with open(path) as lines:
            env.update(dict(line.rstrip("\n").split("=", 1) for line in lines))
    memory = options.get("--memory", [""])[0]
    limit = int(memory.rstrip("bkmg")) * UNITS[memory.lstrip("0123456789")] if memory else None
    made = {"argv": rest[1:], "env": env, "memory": limit, "labels": options["--label"]}
    write(place / "made.json", made)
    write(place / "state.json", {"Status": "created", "ExitCode": 0, "OOMKilled": False})
    return 0


def start(place: Path) -> None:
    made = json.loads((place / "made.json").read_text())
    if os.fork() > 0:
        while json.loads((place / "state.json").read_text())["Status"] == "created":
            time.sleep(0.005)
        return
    os.setsid()  # as the monitor of a container, it outlives this command
    for number in range(3):
        os.close(number)
        os.open(os.devnull, os.O_RDWR)
    with (place / "stdout").open("wb") as stdout, (place / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            made["argv"], env=made["env"], stdout=stdout, stderr=stderr, start_new_session=True
        )
    write(place / "pid.json", process.pid)
    write(place / "state.json", {"Status": "running", "ExitCode": 0, "OOMKilled": False})
    is_oom = False
    while process.poll() is None:
        if made["memory"] is not None and resident(process.pid) > made["memory"]:
            is_oom = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.005)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if place.is_dir():
        write(place / "state.json", {"Status": "exited", "ExitCode": code, "OOMKilled": is_oom})
    os._exit(0)


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def inspect(place: Path) -> None:
    state = (place / "state.json").read_text()
    print(state)
    if json.loads(state)["Status"] == "exited" and (FOLDER / "pruned").exists():
        remove(place)


def stop(place: Path) -> None:
    os.killpg(json.loads((place / "pid.json").read_text()), signal.SIGTERM)
    while json.loads((place / "state.json").read_text())["Status"] == "running":
        time.sleep(0.005)


def remove(place: Path) -> None:
    if json.loads((place / "state.json").read_text())["Status"] == "running":
        stop(place)
    for each in place.iterdir():
        each.unlink()
    place.rmdir()


def logs(place: Path) -> None:
    sys.stdout.buffer.write((place / "stdout").read_bytes())
    sys.stdout.flush()
    while (FOLDER / "endless").exists():
        sys.stdout.buffer.write(b"more\n")
    sys.stderr.buffer.write((place / "stderr").read_bytes())


def write(path: Path, value: object) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
