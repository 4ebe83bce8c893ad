"""Pipelines in tests: what they are told, what they tell, and that they get to their end."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from qbus.clients.pipelines.config import ARCHIVE
from qbus.clients.pipelines.run import Mode, PipelineRun, Tally
from tests.support.broker_process import BrokerProcess
from tests.support.spark_session import has_timed_out
from tests.support.spark_streams import ATTEMPTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def finished(
    pipeline: Callable[["SparkSession", Any, PipelineRun], T],
    spark: "SparkSession",
    config: Any,
    mode: Mode = Mode.ONCE,
) -> tuple[T, Collected]:
    """Run a pipeline to its end; return its result, and what its watcher was told.

    A pipeline whose planner did not start in time has done nothing, and is started again.
    """
    from pyspark.errors import PySparkException

    for attempt in range(ATTEMPTS):
        seen = Collected()
        try:
            return pipeline(spark, config, PipelineRun(mode, seen)), seen
        except PySparkException as error:
            if not has_timed_out(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def archive(spark: "SparkSession", stated: dict[str, Any]) -> None:
    """Archive what is there now; ``stated`` is a configuration."""
    from qbus.clients.pipelines.archive.job import run_archive

    finished(run_archive, spark, ARCHIVE.read(stated))
