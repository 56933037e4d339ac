"""A registered query as its user sees it: results one by one, by a callback, or as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cqels.engine.access import completed, while_open
from cqels.engine.arguments import check_function, check_text
from cqels.engine.running_query import Running
from cqels.model.errors import QueryStopped
from cqels.model.extras import optional
from cqels.plan.algebra import Query
from cqels.results import Result

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from cqels.engine.internals import EngineInternals


def check_callback(callback: object) -> None:
    check_function("callback", callback, "it is a function of one result")


class StandingQuery:
    """A query that runs in an engine. Results are kept until they are taken.

    It can be used from several threads, as its engine can: each result is given to one of them.
    """

    def __init__(self, internals: EngineInternals, running: Running) -> None:
        self.running = running
        self._access = internals.access
        self._internals = internals
        self._callback: Callable[[Result], None] | None = None

    def __repr__(self) -> str:
        return f"<query {self.name}>"

    def __iter__(self) -> Iterator[Result]:
        return self.results()

    @property
    def name(self) -> str:
        return self.running.name

    @property
    def query(self) -> Query:
        """The plan of the query, as it was registered."""
        return self.running.query

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a result, in order."""
        return self.running.query.variables

    @property
    def stopped(self) -> str | None:
        """Why the query was stopped, if it took more than its budget."""
        return None if self.running.stopped is None else self.running.stopped.reason

    @completed
    def take(self) -> list[Result]:
        """What has been sent and not yet taken; QueryStopped if that is nothing, and nothing will come any more."""
        self._internals.renew()
        taken = self.running.take()
        self._check(len(taken))
        return taken

    def results(self) -> Iterator[Result]:
        """What has been sent and not yet taken, one by one; then QueryStopped, if nothing will come any more.

        Each result is taken when it is asked for: those that a loop leaves are still there for another one, or for
        `take()` and the tables.  `for result in query` is the same.
        """
        return iter(self._take_one, None)

    @completed
    def _take_one(self) -> Result | None:
        taken = self.running.take_one()
        if taken is None:
            self._internals.renew()
            taken = self.running.take_one()
        if taken is None:
            self._check()
        return taken

    def _check(self, taken: int = 0) -> None:
        if self.stopped is not None and not taken:
            raise QueryStopped(self.stopped, hint="register it again with a larger budget, or with smaller windows")

    @while_open
    def on_result(self, callback: Callable[[Result], None] | None) -> None:
        """Give each result to a function as it comes, instead of keeping it; None keeps them again.

        It is called in the thread whose push, heartbeat or update made the result, which has the engine to itself: the
        function may use the engine, and must not wait for another thread that does.  What it pushes is processed at
        once; the results of that are given when those before them have been.  If it raises, the other results are
        given all the same, to it and to other functions; then the first exception goes to the caller of the push.
        """
        check_callback(callback)
        self._callback = callback
        if callback is None:
            self._internals.listening.pop(self, None)
        else:
            self._internals.listening.setdefault(self)

    def deliver(self) -> Iterator[Exception]:
        """Give results to the callback: the exceptions that it raises."""
        running = self.running
        while (callback := self._callback) is not None and (result := running.take_one()) is not None:
            try:
                callback(result)
            except Exception as error:
                yield error

    def drop(self) -> None:
        """Stop the query."""
        self._internals.drop(self)

    @while_open
    def explain(self, format: str = "text") -> str:
        """EXPLAIN ANALYZE: the plan with rows, window sizes, bytes of state and the orders that joins have taken.

        Where other queries share it, that is the plan of all of them, and the text says who they are.
        """
        from cqels.plan.explain import explain

        check_text("format", format, "it is text, json or mermaid")
        if self.stopped is not None:
            text = explain(replace(self.query, plan=self.running.plan), format, rewritten=False)
            return text if format != "text" else f"{self.stopped}\n{text}"
        from cqels.engine.explain_analyze import analysed

        share = self.running.member
        if share is not None and share.made is None:  # it is known what will run when something happens
            text = explain(share.general.query, format)  # which has no SERVICE
        elif self.running.compiled is None:
            text = explain(replace(self.query, plan=self.running.plan), format, rewritten=False)
        else:
            services = self._internals.store.services
            text = analysed(self._internals.arena, self.running.compiled, self.running.plan, format, services)
        if format != "text":
            return text
        unit = self.running if share is None or share.made is None else share.running
        shared = [
            share.describe(self.running) if share is not None else "",
            self._internals.describe_shared_joins(unit),
        ]
        return "\n".join([*filter(None, shared), text])

    # ------------------------------------------------------------ tables

    @completed
    def arrow(self) -> pyarrow.Table:
        """What has been sent and not yet taken as an Arrow table: time, tick, sign and a column for each variable.

        Numbers, truth values and dateTimes have Arrow's types where a whole column has one; other terms are their
        IRIs or lexical forms.
        """
        from cqels.engine.output.arrow_columns import table_taken

        self._internals.renew()
        with self.running.whole():
            table = table_taken(self.running)
        self._check(table.num_rows)
        return table

    @completed
    def terms(self) -> pyarrow.RecordBatch:
        """What has been sent and not yet taken as Arrow columns of N-Triples texts, the fastest way to take it.

        The columns are `time` (nanoseconds), `tick`, `sign`, `empty` (true where the row says that a snapshot is), and
        `?name` for each variable; for ASK `answer`, for CONSTRUCT `triples`.
        """
        from cqels.engine.output.arrow_columns import terms_of

        self._internals.renew()
        with self.running.whole():
            columns = terms_of(self.running)
        self._check(columns.num_rows)
        return columns

    def pandas(self) -> pandas.DataFrame:
        """`arrow()` for pandas."""
        optional("pandas", "pandas")  # before anything is taken
        return self.arrow().to_pandas()

    def polars(self) -> polars.DataFrame:
        """`arrow()` for polars."""
        return optional("polars", "polars").from_arrow(self.arrow())
