"""The worker processes of the demo: started as anybody would, from the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

STOP_SECONDS = 30.0


class WorkerProcess:
    """One ``perdure worker`` and its log file."""

    def __init__(self, number: int, store: str, folder: Path) -> None:
        self.name = f"worker {number}"
        self.log = folder / f"worker-{number}.log"
        self.is_killed = False
        command = [sys.executable, "-m", "perdure.cli", "worker", "perdure.demo.tasks:worker"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--store", store, "--grace", "5s"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL: it has no chance to say goodbye."""
        self.is_killed = True
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM: it finishes what it runs, and its exit code says that nothing went wrong."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
