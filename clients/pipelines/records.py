"""The records that a pipeline reads, as a stream or as one batch."""

from pyspark.sql import DataFrame, SparkSession

from ..spark.cluster_options import security_options
from .config import Pipeline, Source
from .config.common import Streaming

LINE_COLUMNS = "value binary, timestamp timestamp, topic string, partition int"
"""The columns that pipelines of lines read."""


def stream(spark: SparkSession, config: Streaming, columns: str) -> DataFrame:
    """A stream of existing and new records; ``columns``: a schema of the source's columns."""
    reader = spark.readStream.format("qbus").schema(columns)
    options = {**_options(config), "startingOffsets": config.source.starting}
    if config.source.batch_records:
        options["maxOffsetsPerTrigger"] = str(config.source.batch_records)
    return reader.options(**{**options, **dict(config.source.options)}).load()


def batch(spark: SparkSession, config: Pipeline, columns: str) -> DataFrame:
    """The records that exist now."""
    reader = spark.read.format("qbus").schema(columns)
    return reader.options(**{**_options(config), **dict(config.source.options)}).load()


def _options(config: Pipeline) -> dict[str, str]:
    own = {"qbus.bootstrap": config.bootstrap, **security_options(config.security)}
    return {**own, **subscription(config.source)}


def subscription(source: Source) -> dict[str, str]:
    """The source option that names the topics."""
    if source.pattern:
        return {"subscribePattern": source.pattern}
    return {"subscribe": ",".join(source.topics)}
