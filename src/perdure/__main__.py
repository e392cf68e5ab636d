"""``python -m perdure`` is the same as ``perdure``."""

from perdure.cli import main

main()
