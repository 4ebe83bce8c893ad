"""Qbus on Apache Spark: ``spark.readStream.format("qbus")``, without a jar.

Spark finds the format by itself where Qbus is installed. Needs the extra: pip install qbus[spark]
"""

from typing import TYPE_CHECKING, Any

from qbus.records.extras import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .datasource import QbusDataSource

__all__ = ["QbusDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make the format ``qbus`` known to a session that does not find it, as from ``--py-files``.

    The package must still be there to import on the driver and on the executors.
    """
    spark.dataSource.register(_data_source())


def __getattr__(name: str) -> Any:
    """Import the source when it is asked for: options can be read without pyspark.

    Raises :class:`~qbus.records.extras.MissingExtra` where pyspark is not installed.
    """
    if name != "QbusDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _data_source()


def _data_source() -> "type[QbusDataSource]":
    try:
        from .datasource import QbusDataSource  # noqa: PLC0415 - pyspark, which not all have
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        message = "Spark needs pyspark 4.2 or newer: pip install qbus[spark]"
        raise MissingExtra(message, name=error.name) from error
    return QbusDataSource
