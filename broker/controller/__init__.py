"""The controller: decisions about topics, leaders, reassignments and configuration."""

from .configs import (
    MIRROR_KEYS,
    Edit,
    EditKind,
    edit,
    remember_compacted,
    replace,
    says_compacted,
    with_compacted,
    with_idle_time,
    with_mirror_source,
)
from .controller import ConfigChange, Controller, Growth, Reassignment
from .elections import ElectionType, leaderless_partitions
from .failure_detector import FailureDetector
from .leader_elector import resign
from .registration import (
    announce_stop,
    announce_storage,
    ensure_cluster_id,
    expire_previous_registration,
    find_cluster_id,
    raise_broker_epoch,
    register_broker,
    unregister_broker,
)
from .topics import DEFAULT, NewTopic, TopicPlan

__all__ = [
    "DEFAULT",
    "MIRROR_KEYS",
    "ConfigChange",
    "Controller",
    "Edit",
    "EditKind",
    "ElectionType",
    "FailureDetector",
    "Growth",
    "NewTopic",
    "Reassignment",
    "TopicPlan",
    "announce_stop",
    "announce_storage",
    "edit",
    "ensure_cluster_id",
    "expire_previous_registration",
    "find_cluster_id",
    "leaderless_partitions",
    "raise_broker_epoch",
    "register_broker",
    "remember_compacted",
    "replace",
    "resign",
    "says_compacted",
    "unregister_broker",
    "with_compacted",
    "with_idle_time",
    "with_mirror_source",
]
