"""Run the demo: ``python -m perdure.demo [--fast]``."""

import sys

from perdure.cli import need_extra

need_extra("the demo")

from perdure.demo.showing import main  # noqa: E402 - it imports what may be missing

sys.exit(main())
