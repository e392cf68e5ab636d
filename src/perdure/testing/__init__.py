"""Tools for testing flows, and Perdure itself. No production code imports this package."""

from perdure.clock import ManualClock
from perdure.errors import NotFaked, NotSettled
from perdure.testing.fakes import MadeCall, in_turn
from perdure.testing.jobs import AsyncKitJob
from perdure.testing.kit import AsyncKit
from perdure.testing.runs import AsyncKitRun
from perdure.testing.sync import Kit, KitJob, KitRun

__all__ = [
    "AsyncKit",
    "AsyncKitJob",
    "AsyncKitRun",
    "Kit",
    "KitJob",
    "KitRun",
    "MadeCall",
    "ManualClock",
    "NotFaked",
    "NotSettled",
    "in_turn",
]
