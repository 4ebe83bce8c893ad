"""The format ``qbus``: what Spark makes, in this process and that, to read and to write."""

from pyspark.sql.datasource import DataSource
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
