"""A process that does as it is told: wait for ever, or end badly."""

from __future__ import annotations

import sys
import threading

from perdure import StoreUnreachable
from proof.chaos.children import say_ready, settings_told

if __name__ == "__main__":
    match settings_told()["does"]:
        case "fails":
            print("on purpose", file=sys.stderr)
            sys.exit(3)
        case "finds no store":
            raise StoreUnreachable(url="sqlite:///nowhere.db", reason="it is not there")
        case _:
            say_ready()
            threading.Event().wait()
