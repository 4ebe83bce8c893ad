"""A cluster on one machine, for trials and tests: ZooKeepers, brokers and Spark."""

from qbus.local_cluster.cluster import LocalCluster
from qbus.local_cluster.layout import (
    BROKER,
    SPARK_MASTER,
    SPARK_WORKER,
    ZOOKEEPER,
    Layout,
    LocalClusterError,
)
from qbus.local_cluster.settings import ClusterSettings

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
