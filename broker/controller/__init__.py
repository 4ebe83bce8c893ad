"""The controller: who decides about topics, leaders and configuration, and how."""

from .configs import Edit, EditKind, edit, replace
from .controller import ConfigChange, Controller, Growth
from .registration import check_alone, ensure_cluster_id, register_broker
from .topics import DEFAULT, NewTopic, TopicPlan

__all__ = [
    "DEFAULT",
    "ConfigChange",
    "Controller",
    "Edit",
    "EditKind",
    "Growth",
    "NewTopic",
    "TopicPlan",
    "check_alone",
    "edit",
    "ensure_cluster_id",
    "register_broker",
    "replace",
]
