"""A process that waits forever or fails, as instructed."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from perdure import StoreUnreachable
from perdure.worker.isolation import EXIT_SUPERSEDED
from proof.chaos.children import own_settings, say_ready

if __name__ == "__main__":
    settings = own_settings()
    match settings["does"]:
        case "fails":
            print("on purpose", file=sys.stderr)
            sys.exit(3)
        case "finds no store":
            raise StoreUnreachable(url="sqlite:///nowhere.db", reason="it is not there")
        case "gives way" | "fails to give way" as does:
            newer = Path(settings["newer"])
            say_ready()
            if settings["generation"]:
                newer.touch()
            while settings["generation"] or not newer.exists():
                time.sleep(0.01)
            sys.exit(EXIT_SUPERSEDED if does == "gives way" else 3)
        case _:
            say_ready()
            threading.Event().wait()
