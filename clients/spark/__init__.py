"""Qbus on Apache Spark: ``spark.readStream.format("qbus")``, without a jar.

Spark finds the format by itself where Qbus is installed. Needs the extra: pip install qbus[spark]
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .datasource import QbusDataSource

__all__ = ["QbusDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make the format ``qbus`` known to a session that does not find it, as from ``--py-files``.

    The package must still be there to import on the driver and on the executors.
    """
    from .datasource import QbusDataSource  # noqa: PLC0415 - pyspark is imported where it is used

    spark.dataSource.register(QbusDataSource)


def __getattr__(name: str) -> Any:
    """Import the source when it is asked for: options can be read without pyspark."""
    if name != "QbusDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .datasource import QbusDataSource  # noqa: PLC0415 - see above

    return QbusDataSource
