"""The format ``qbus``: the data source that Spark creates in each process of a query."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .options import Options
from .schema import source_schema


class QbusDataSource(DataSource):
    """Reads and writes topics of a Qbus or Kafka cluster.

    Spark creates an instance in every process of a query; the instance opens no connections. The
    methods raise :class:`~qbus.errors.ConfigError` for invalid options and schemas.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "qbus"

    def schema(self) -> StructType:
        """The columns of a query that does not choose its own."""
        options = Options(self.options)
        return source_schema(include_headers=options.boolean("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of a batch query."""
        from .source.batch import BatchReader  # noqa: PLC0415 - not needed to write

        return BatchReader(self.options, schema)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Create the reader of a streaming query."""
        from .source.stream import StreamReader  # noqa: PLC0415

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Create the writer of a batch query."""
        from .sink.writers import BatchWriter  # noqa: PLC0415 - not needed to read

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - of output mode "complete"
    ) -> DataSourceStreamWriter:
        """Create the writer of a streaming query."""
        from .sink.writers import StreamWriter  # noqa: PLC0415

        return StreamWriter(self.options, schema)
