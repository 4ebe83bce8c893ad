"""A whole cluster on one machine, for trials and tests: ZooKeepers and brokers as processes."""

from .cluster import LocalCluster
from .errors import LocalClusterError
from .layout import BROKER, ZOOKEEPER, Layout
from .settings import ClusterSettings

__all__ = ["BROKER", "ZOOKEEPER", "ClusterSettings", "Layout", "LocalCluster", "LocalClusterError"]
