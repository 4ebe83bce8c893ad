"""The format ``qbus``: what Spark makes, in this process and that, to read and to write."""

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

    Opens nothing by itself: Spark makes it again in every process that has to do with a query. Its
    methods raise :class:`~qbus.errors.ConfigError` for options and schemas that are wrong.
    """

    @classmethod
    def name(cls) -> str:
        """What a user gives to ``format``."""
        return "qbus"

    def schema(self) -> StructType:
        """The columns to read, where the user does not choose some of them."""
        options = Options(self.options)
        return source_schema(include_headers=options.boolean("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a range once."""
        from .source.batch import BatchReader  # noqa: PLC0415 - whoever writes needs none

        return BatchReader(self.options, schema)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Reads on and on."""
        from .source.stream import StreamReader  # noqa: PLC0415

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes once."""
        from .sink.writers import BatchWriter  # noqa: PLC0415 - whoever reads needs none

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - of output mode "complete"
    ) -> DataSourceStreamWriter:
        """Writes on and on."""
        from .sink.writers import StreamWriter  # noqa: PLC0415

        return StreamWriter(self.options, schema)
