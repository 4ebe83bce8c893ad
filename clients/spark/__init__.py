"""Qbus on Apache Spark: ``spark.readStream.format("qbus")``, without a jar.

Spark finds the format where Qbus is installed with its extra: ``pip install 'qbus[spark]'``.
"""

from typing import TYPE_CHECKING, Any

from qbus.errors import MissingExtra
from qbus.extras import lacks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .datasource import QbusDataSource

__all__ = ["QbusDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Register the format ``qbus`` where Spark does not find it, as with ``--py-files``.

    The driver and the executors must be able to import the package.
    """
    spark.dataSource.register(_data_source())


def __getattr__(name: str) -> Any:
    """Import the data source on first use, so that options can be read without pyspark.

    Raises :class:`~qbus.errors.MissingExtra` where pyspark is not installed.
    """
    if name != "QbusDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _data_source()


def _data_source() -> "type[QbusDataSource]":
    try:
        from .datasource import QbusDataSource  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        message = lacks("Spark needs pyspark 4.2 or newer", "spark")
        raise MissingExtra(message, name=error.name) from error
    return QbusDataSource
