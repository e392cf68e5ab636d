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
        self.id = f"worker-{number}"
        self.log = folder / f"{self.id}.log"
        self.is_killed = False
        target = f"perdure.demo.tasks:worker_{number}"
        command = [sys.executable, "-m", "perdure.cli", "worker", target]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--store", store, "--grace", "5s"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever looks on; the workers are stopped after that.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL: it has no chance to say goodbye."""
        self.is_killed = True
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM: it finishes what it runs."""
        if not self.has_ended:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
