"""The shop of ``outbox.py`` with SQLAlchemy: an order and its letter in one transaction.

    pip install sqlalchemy
    python examples/outbox_sqlalchemy.py

``client.using(session).enqueue(...)`` writes the job through the session that writes the
order. A rollback discards both; a commit keeps both, even if this program crashes on the next line.
Orders and jobs are in ``bookshop.db``; for PostgreSQL, pass
``--database postgresql+psycopg://…``.
"""

from __future__ import annotations

import argparse

from sqlalchemy import ForeignKey, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from perdure import CONTEXT, Client, Context, Retry, Worker, task

DATABASE = "sqlite:///bookshop.db"


class Base(DeclarativeBase):
    pass


class Book(Base):
    __tablename__ = "book"
    title: Mapped[str] = mapped_column(primary_key=True)
    stock: Mapped[int]


class Order(Base):
    __tablename__ = "book_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(ForeignKey("book.title"))


@task(queue="letters", retries=Retry(5, first="2s", max="10m"))
def confirm(order: int, title: str, ctx: Context = CONTEXT) -> str:
    """Send the confirmation; the key lets the mail service recognize a repeated request."""
    return f"letter: order {order}, {title!r}, is on its way"


def order_book(session: Session, client: Client, title: str) -> int:
    """Take one order in the session's transaction; raise ``LookupError`` if none is left."""
    order = Order(title=title)
    session.add(order)
    session.flush()  # assigns the order number
    client.using(session).enqueue(confirm.options(group="orders"), order.id, title)
    book = session.get_one(Book, title)
    book.stock -= 1
    if book.stock < 0:
        raise LookupError(f"no {title!r} is left")
    return order.id


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders and letters in one transaction.")
    parser.add_argument("--database", default=DATABASE)
    parser.add_argument("titles", nargs="*", default=["Emma", "Emma", "Dracula", "Emma"])
    options = parser.parse_args()
    store = options.database.replace("+psycopg", "")  # the same database as a store URL
    engine = create_engine(options.database)
    Base.metadata.create_all(engine)
    with Client(store) as client:
        with Session(engine) as session:
            if not session.scalar(select(func.count()).select_from(Book)):
                session.add_all([Book(title="Emma", stock=2), Book(title="Dracula", stock=5)])
                session.commit()
        for title in options.titles:
            try:
                with Session(engine) as session, session.begin():
                    print(f"took order {order_book(session, client, title)}: {title}")
            except LookupError as reason:
                print(f"refused: {reason}")
        worker = Worker(store, tasks=[confirm]).start()
        jobs = reversed(client.jobs.list(group="orders", limit=1000))
        for letter in client.jobs.results(client.jobs.handle(job.id) for job in jobs):
            print(letter)
        worker.shutdown()
        worker.join()
    engine.dispose()


if __name__ == "__main__":
    main()
