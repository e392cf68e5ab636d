"""Take orders and send their confirmations: both or neither, through any crash.

    python examples/outbox.py

The order and the job that confirms it are written in one transaction on the program's own
connection. If it is rolled back, there is no order and no letter. If it is committed, the letter
is sent even if this program crashes on the next line: the next worker finds the job.
"""

from __future__ import annotations

import argparse
import sqlite3

from perdure import CONTEXT, Client, Context, Retry, Worker, task

STOCK = {"lamp": 3, "chair": 1}


@task(queue="letters", retries=Retry(5, first="2s", max="10m"))
def confirm(order: int, item: str, ctx: Context = CONTEXT) -> str:
    """Send the confirmation; the key lets the mail service recognize a repeated request."""
    return f"order {order} ({item}) confirmed, key {ctx.idempotency_key}"


class Shop:
    """Orders in the same SQLite file as the jobs."""

    def __init__(self, path: str, client: Client) -> None:
        self._client = client
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS shop_order (id INTEGER PRIMARY KEY, item TEXT NOT NULL)"
        )

    def order(self, item: str) -> int:
        """Take one order; raise ``LookupError`` and write nothing if the stock is empty."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            query = "INSERT INTO shop_order (item) VALUES (?) RETURNING id"
            [[order]] = connection.execute(query, [item]).fetchall()
            self._client.using(connection).enqueue(confirm.options(group="orders"), order, item)
            self._check_stock(item)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return int(order)

    def close(self) -> None:
        self._connection.close()

    def _check_stock(self, item: str) -> None:
        query = "SELECT count(*) FROM shop_order WHERE item = ?"
        [[ordered]] = self._connection.execute(query, [item]).fetchall()
        if ordered > STOCK.get(item, 0):
            raise LookupError(f"no {item} is left")


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders and their letters, in one transaction.")
    parser.add_argument("--file", default="shop.db")
    parser.add_argument("items", nargs="*", default=["lamp", "chair", "chair", "lamp"])
    options = parser.parse_args()
    store = f"sqlite:///{options.file}"
    with Client(store) as client:
        shop = Shop(options.file, client)
        for item in options.items:
            try:
                print(f"took order {shop.order(item)}: {item}")
            except LookupError as reason:
                print(f"refused: {reason}")
        shop.close()
        worker = Worker(store, tasks=[confirm]).start()
        jobs = reversed(client.jobs.list(group="orders", limit=1000))
        for letter in client.jobs.results(client.jobs.handle(job.id) for job in jobs):
            print(letter)
        worker.shutdown()
        worker.join()


if __name__ == "__main__":
    main()
