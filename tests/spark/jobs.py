"""Pipelines in tests: what they are told, what they tell, and that they get to their end."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from qbus.clients.pipelines.run import Tally
from tests.support.broker_process import BrokerProcess
from tests.support.spark_session import has_timed_out
from tests.support.spark_streams import ATTEMPTS

T = TypeVar("T")


class Collected:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []
        self.tallies: Sequence[Tally] = []
        self.notes: list[str] = []

    def progress(self, tallies: Sequence[Tally]) -> None:
        self.tallies = tallies

    def rows(self, rows: Sequence[dict[str, Any]]) -> None:
        self.results += rows

    def working(self, text: str) -> None:
        assert text

    def note(self, text: str) -> None:
        self.notes.append(text)


def told(broker: BrokerProcess, *topics: str, **more: Any) -> dict[str, Any]:
    """A configuration that reads these topics."""
    return {"bootstrap": broker.bootstrap, "source": {"topics": [*topics]}, **more}


def finished(pipeline: Callable[[Collected], T]) -> tuple[T, Collected]:
    """What a pipeline gives that is given a watcher, and what that was told.

    One whose planner did not start in time has done nothing, and is started again.
    """
    from pyspark.errors import PySparkException

    for attempt in range(ATTEMPTS):
        seen = Collected()
        try:
            return pipeline(seen), seen
        except PySparkException as error:
            if not has_timed_out(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
