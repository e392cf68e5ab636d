"""A process that waits forever or fails, as instructed."""

from __future__ import annotations

import sys
import threading

from perdure import StoreUnreachable
from proof.chaos.children import own_settings, say_ready

if __name__ == "__main__":
    match own_settings()["does"]:
        case "fails":
            print("on purpose", file=sys.stderr)
            sys.exit(3)
        case "finds no store":
            raise StoreUnreachable(url="sqlite:///nowhere.db", reason="it is not there")
        case _:
            say_ready()
            threading.Event().wait()
