"""Runs a pipeline in a Spark session of its own."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from . import progress, session
from .config import Pipeline
from .failures import PipelineFailed, reason
from .run import Mode, PipelineRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    _Runner = Callable[[SparkSession, Any, PipelineRun], Any]


def launch(
    name: str,
    config: Pipeline,
    run: PipelineRun,
    *,
    master: str | None,
    settings: Mapping[str, str],
) -> Any:
    """Run a pipeline to its end; return its result.

    master, settings: as :func:`~.session.start`.

    Raises :class:`~qbus.errors.QbusError` with a message of one line.
    """
    session.check(config, master=master, settings=settings)
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - comes with pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        spark = session.start(config, name, master=master, settings=settings)
        try:
            has_batches = name not in {"audit", "compact"} and run.mode is not Mode.BATCH
            with nullcontext() if has_batches else progress.stages_reported(spark, run.watcher):
                return _runner(name)(spark, config, run)
        finally:
            with suppress(Py4JError):  # after an interrupted call; the JVM ends with this process
                spark.stop()
    except (PySparkException, Py4JJavaError, OSError) as error:
        raise PipelineFailed(reason(error)) from error
    except Py4JError as error:
        raise PipelineFailed(f"Spark's process has ended or does not answer: {error}") from error


def _runner(name: str) -> "_Runner":
    # Imported late: they need pyspark.
    if name == "archive":
        from .archive.job import run_archive  # noqa: PLC0415

        return run_archive
    if name == "compact":
        from .archive.job import compact_archive  # noqa: PLC0415

        return compact_archive
    if name == "audit":
        from .audit.job import run_audit  # noqa: PLC0415

        return run_audit
    if name == "stats":
        from .line_jobs import run_stats  # noqa: PLC0415

        return run_stats
    from .line_jobs import run_abuse  # noqa: PLC0415

    return run_abuse
