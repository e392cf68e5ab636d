"""Names for the texts that identify things, so that one cannot stand in for another."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
RunId = NewType("RunId", str)
