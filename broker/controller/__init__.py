"""The controller: who decides about topics, leaders and configuration, and how."""

from .configs import Edit, EditKind, edit, replace
from .controller import ConfigChange, Controller, Growth, Reassignment
from .elections import leaderless_partitions
from .lookout import Lookout
from .preferred import ElectionType
from .registration import (
    announce_room,
    announce_stop,
    end_former_life,
    ensure_cluster_id,
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
    "Growth",
    "Lookout",
    "NewTopic",
    "Reassignment",
    "TopicPlan",
    "announce_room",
    "announce_stop",
    "edit",
    "end_former_life",
    "ensure_cluster_id",
    "fence",
    "give_up",
    "leaderless_partitions",
    "register_broker",
    "replace",
    "unregister_broker",
]
