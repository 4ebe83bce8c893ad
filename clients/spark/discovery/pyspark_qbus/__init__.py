"""The module that Spark discovers: ``pyspark_*`` with a ``DefaultSource``.

Spark ignores all discovered modules if one of them cannot be imported. So this one never raises: if
the data source cannot be imported, the module has no ``DefaultSource``.
"""

import logging

try:
    from qbus.clients.spark.datasource import QbusDataSource as DefaultSource
except Exception as error:  # noqa: BLE001 - other data sources must still be found
    logging.getLogger(__name__).warning("the format qbus is not available on Spark: %s", error)
else:
    __all__ = ["DefaultSource"]
