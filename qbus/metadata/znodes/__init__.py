"""The layout of the store: of each node its path, and its data in both directions.

Where Apache Kafka kept the same in ZooKeeper, paths and JSON are Kafka's (its ``ZkData``, as of
3.x), so that its operators' tools read them; the rest is in the same style. Fields that Kafka's
tools expect but nothing here needs are written and not read.

Every ``decode`` raises MalformedNode.
"""

from qbus.metadata.znodes.brokers import (
    BROKER_EPOCHS,
    BROKERS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerEpochNode,
    BrokerNode,
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
)
from qbus.metadata.znodes.changes import (
    ChangeNode,
)
from qbus.metadata.znodes.topics import (
    ALL_BROKERS,
    BROKER_CONFIGS,
    NO_LEADER,
    TOPIC_CONFIGS,
    TOPICS,
    ConfigNode,
    PartitionStateNode,
    TopicNode,
)

__all__ = [
    "ALL_BROKERS",
    "BROKERS",
    "BROKER_CONFIGS",
    "BROKER_EPOCHS",
    "CLUSTER_ID",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "NO_LEADER",
    "TOPICS",
    "TOPIC_CONFIGS",
    "BrokerEpochNode",
    "BrokerNode",
    "ChangeNode",
    "ClusterIdNode",
    "ConfigNode",
    "ControllerEpochNode",
    "ControllerNode",
    "PartitionStateNode",
    "TopicNode",
]
