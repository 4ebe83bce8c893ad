"""What Spark looks for: a module ``pyspark_*`` with a ``DefaultSource`` makes its format known.

One such module that cannot be imported would hide all others from Spark: this one then has none.
"""

import logging

try:
    from qbus.clients.spark.datasource import QbusDataSource as DefaultSource
except Exception as error:  # noqa: BLE001 - whatever it is, other data sources must be found
    logging.getLogger(__name__).warning("Spark goes without the format qbus: %s", error)
else:
    __all__ = ["DefaultSource"]
