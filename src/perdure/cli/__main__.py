"""``python -m perdure.cli`` is the same as ``perdure``."""

from perdure.cli import main

main()
