"""The sink's interface to Spark: a writer for batch queries, and one for streams."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from qbus.errors import QbusError

from ...prepared import PreparedTransaction
from ..connections import Connections, connections
from ..options import OptionError
from ..schema import check_sink_schema
from .commit import Committer
from .manifest import StagedBatch
from .options import SinkOptions
from .task import TaskWriter

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """The result of one task: the query, and what the task has staged, or its transaction."""

    query: str
    staged: tuple[StagedBatch, ...]
    prepared: PreparedTransaction | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes a data frame; with ``qbus.query.id`` and ``qbus.batch.id`` a repeat writes nothing."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raises :class:`~qbus.errors.ConfigError`; connects to nothing."""
        self._options = SinkOptions.of(given)
        if overwrite:
            raise OptionError("mode", "overwrite", "topics cannot be overwritten: use append")
        check_sink_schema(schema, self._options.topic)
        self._query = self._options.query_id or uuid4().hex
        self._run = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage or write the rows of one task."""
        writer = TaskWriter(self._options, _transactional_id(self._run))
        return Written(self._query, *writer.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the staged batches."""
        batch = None if self._options.query_id is None else self._options.batch_id
        _commit(self._options, messages, batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the staged batches to the staging topic's retention; abort transactions."""
        _abort(self._options, messages)
        done = sum(message is not None for message in messages)
        _log.warning("a batch write failed; the rows of %d tasks are not published", done)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each once.

    Output mode "complete" appends the whole result each time, as Spark's Kafka sink does.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises :class:`~qbus.errors.ConfigError`; connects to nothing."""
        self._options = SinkOptions.of(given)
        if self._options.query_id is not None:
            remedy = "a stream's id is in its checkpoint: leave this out"
            raise OptionError("qbus.query.id", self._options.query_id, remedy)
        check_sink_schema(schema, self._options.topic)
        self._run = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage or write the rows of one task."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        if query is None:
            raise QbusError(f"Spark does not tell the id of the task's query ({_QUERY_ID})")
        writer = TaskWriter(self._options, _transactional_id(self._run))
        return Written(query, *writer.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the staged batches of a micro-batch, once, however often this is called."""
        _commit(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the staged batches to the staging topic's retention; abort transactions."""
        _abort(self._options, messages)
        done = sum(message is not None for message in messages)
        _log.warning("batch %d failed; the rows of %d tasks are not published", batchId, done)


def _transactional_id(run: str) -> str:
    """A transactional id for this attempt of a task, in one run of a writer.

    An id of its own for each run, partition and attempt: none aborts what another has filled, and
    there are only so many of them.
    """
    context = TaskContext.get()
    if context is None:
        return f"qbus-spark-{run}"
    return f"qbus-spark-{run}-{context.partitionId()}-{context.attemptNumber()}"


def _abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transactions of the tasks that were done; those of others end by themselves."""
    done = [message for message in messages if isinstance(message, Written)]
    prepared = [message.prepared for message in done if message.prepared is not None]
    if prepared:
        _connected, committer = _committer(options)
        _connected.run(committer.abort(prepared))


def _committer(options: SinkOptions) -> tuple[Connections, Committer]:
    connected = connections(options.cluster)
    timeout = options.producer.delivery_timeout_ms / 1000
    return connected, Committer(connected.cluster, options.staging_topic, timeout)


def _commit(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None
) -> None:
    """Publish the staged batches as a query's ``batch``; None: the write is never repeated."""
    if not options.is_exactly_once:
        return
    written = [message for message in messages if isinstance(message, Written)]
    if len(written) != len(messages):
        raise QbusError("a task succeeded without a commit message")
    if not written:
        return
    connected, committer = _committer(options)
    query = written[0].query
    staged = [each for message in written for each in message.staged]
    prepared = [message.prepared for message in written if message.prepared is not None]
    if batch is None:
        connected.run(committer.publish(query, staged, prepared))
    else:
        connected.run(committer.commit(query, batch, staged, prepared))
