"""The records that a pipeline reads, as a stream or as one batch."""

from pyspark.sql import DataFrame, SparkSession

from .config import Pipeline, Source
from .config.common import Streaming

LINE_COLUMNS = "value binary, timestamp timestamp, topic string, partition int"
"""What is read of a record for its lines."""


def stream(spark: SparkSession, config: Streaming, columns: str) -> DataFrame:
    """The records that there are and that come; ``columns``: a schema, of Kafka's columns."""
    reader = spark.readStream.format("qbus").schema(columns)
    options = {**_options(config), "startingOffsets": config.source.starting}
    if config.source.batch_records:
        options["maxOffsetsPerTrigger"] = str(config.source.batch_records)
    return reader.options(**{**options, **dict(config.source.options)}).load()


def batch(spark: SparkSession, config: Pipeline, columns: str) -> DataFrame:
    """The records that there are now."""
    reader = spark.read.format("qbus").schema(columns)
    return reader.options(**{**_options(config), **dict(config.source.options)}).load()


def _options(config: Pipeline) -> dict[str, str]:
    return {"qbus.bootstrap": config.bootstrap, **subscription(config.source)}


def subscription(source: Source) -> dict[str, str]:
    """The option that names the topics."""
    if source.pattern:
        return {"subscribePattern": source.pattern}
    return {"subscribe": ",".join(source.topics)}
