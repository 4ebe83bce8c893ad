"""The controller: who decides about topics, leaders and configuration, and how."""

from .configs import Edit, EditKind, edit, replace
from .controller import ConfigChange, Controller, Growth, Reassignment
from .elections import leaderless_partitions
from .failure_detector import FailureDetector
from .preferred import ElectionType
from .registration import (
    announce_room,
    announce_stop,
    ensure_cluster_id,
    expire_previous_registration,
    fence,
    register_broker,
    unregister_broker,
)
from .restart import give_up
from .topics import DEFAULT, NewTopic, TopicPlan

__all__ = [
    "DEFAULT",
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
    "announce_room",
    "announce_stop",
    "edit",
    "ensure_cluster_id",
    "expire_previous_registration",
    "fence",
    "give_up",
    "leaderless_partitions",
    "register_broker",
    "replace",
    "unregister_broker",
]
