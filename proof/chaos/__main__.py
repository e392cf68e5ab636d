"""Run chaos with a PostgreSQL server of its own: ``python -m proof.chaos --help``."""

import sys

from proof.chaos.command import main
from tests.postgres_server import PostgresServer

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PostgresServer))
