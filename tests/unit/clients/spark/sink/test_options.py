"""Options and columns of the sink: those of Spark's Kafka sink, and clear words for the rest."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from qbus.clients.spark.options import OptionError
from qbus.clients.spark.schema import HEADERS_TYPE, SchemaError, check_sink_schema, source_schema
from qbus.clients.spark.sink.options import STAGING_TOPIC, SinkOptions

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def columns(**kinds: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])  # type: ignore[arg-type]


def test_defaults() -> None:
    options = SinkOptions.of(SERVERS)
    assert options.is_exactly_once
    assert (options.topic, options.staging_topic) == (None, STAGING_TOPIC)
    assert (options.producer.acks, options.producer.compression) == ("all", "none")


def test_kafkas_options_are_heard_in_any_case() -> None:
    options = SinkOptions.of(
        {**SERVERS, "TOPIC": "t", "Kafka.Compression.Type": "LZ4", "kafka.batch.size": "16384"}
    )
    assert options.topic == "t"
    assert (options.producer.compression, options.producer.batch_bytes) == ("lz4", 16384)


def test_sparks_own_options_are_accepted() -> None:
    SinkOptions.of({**SERVERS, "queryname": "q", "checkpointlocation": "/c"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": " "}, "topic: .*name a topic"),
        ({"kafka.acks": "1"}, r"kafka\.acks: '1': .*qbus\.exactly\.once=false"),
        ({"kafka.acks": "2"}, "give one of all"),
        ({"kafka.compression.type": "rar"}, "give one of none, gzip"),
        ({"qbus.query.id": "q"}, r"qbus\.query\.id: 'q': needs qbus\.batch\.id"),
        ({"qbus.batch.id": "1"}, r"qbus\.batch\.id: '1': needs qbus\.query\.id"),
        ({"qbus.query.id": " ", "qbus.batch.id": "1"}, "a unique name"),
        ({"topics": "t"}, "did you mean topic"),
        ({"kafka.transactional.id": "x"}, "qbus.transactions=true"),
        ({"kafka.batch.size": "0"}, "at least 1"),
    ],
)
def test_errors_name_the_cause(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SinkOptions.of({**SERVERS, **given})


def test_fewer_acknowledgements_are_for_at_least_once() -> None:
    options = SinkOptions.of({**SERVERS, "qbus.exactly.once": "false", "kafka.acks": "1"})
    assert options.producer.acks == "1"


def test_read_columns_can_be_written() -> None:
    check_sink_schema(source_schema(include_headers=True), None)
    check_sink_schema(columns(value=StringType(), key=StringType(), headers=HEADERS_TYPE), "t")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (columns(key=BinaryType()), "column value is missing"),
        (columns(value=DoubleType()), "value is double and must be binary or string: cast it"),
        (columns(value=StringType(), headers=ArrayType(StringType())), "column headers is"),
        (columns(value=StringType(), partition=StringType()), "must be int"),
        (columns(value=StringType(), hedaers=HEADERS_TYPE), "no column hedaers"),
    ],
)
def test_wrong_columns(schema: StructType, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_sink_schema(schema, "t")


def test_a_topic_is_required() -> None:
    with pytest.raises(SchemaError, match="set the option topic, or add a column topic"):
        check_sink_schema(columns(value=StringType(), partition=IntegerType()), None)
