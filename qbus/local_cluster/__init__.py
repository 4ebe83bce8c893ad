"""A whole cluster on one machine, for trials and tests: ZooKeepers, brokers and Spark."""

from .cluster import LocalCluster
from .errors import LocalClusterError
from .layout import BROKER, SPARK_MASTER, SPARK_WORKER, ZOOKEEPER, Layout
from .settings import ClusterSettings

__all__ = [
    "BROKER",
    "SPARK_MASTER",
    "SPARK_WORKER",
    "ZOOKEEPER",
    "ClusterSettings",
    "Layout",
    "LocalCluster",
    "LocalClusterError",
]
