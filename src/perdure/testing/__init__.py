"""What flows, and Perdure itself, are tested with. Nothing in production imports it."""

from perdure.clock import ManualClock
from perdure.errors import NotFaked, NotSettled
from perdure.testing.fakes import in_turn
from perdure.testing.kit import AsyncKit
from perdure.testing.kit_blocking import Kit, KitJob, KitRun
from perdure.testing.kit_jobs import AsyncKitJob
from perdure.testing.kit_runs import AsyncKitRun
from perdure.testing.staging import MadeCall

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
