"""How a group of KIP-848 is stored, below the node of the group (:mod:`qbus.broker.group.znodes`).

    consumer             JSON: the group's epoch, and the epoch that the targets were made in
    consumer/<member>    JSON: a member: what it told, its epoch, what it has and what it is to have

Partitions are lists of indexes by the topic's id in hexadecimal. What the store knows of members is
what responses told them at most, so a new coordinator never gives a partition to two of them.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from qbus.names import escape, unescape

from ..group.requests import GroupProtocol
from ..group.znodes import MalformedGroupError
from .assignors import Partitions
from .member import Classic, Member, MemberState

_GROUP: Final = "consumer"
_VERSION: Final = 1


def group_path() -> str:
    """Return the path of what belongs to all members."""
    return _GROUP


def member_path(member_id: str) -> str:
    """Return the path of a member."""
    return f"{_GROUP}/{escape(member_id)}"


def encode_group(epoch: int, assignment_epoch: int) -> bytes:
    """Encode what belongs to all members."""
    return _encode({"epoch": epoch, "assignment_epoch": assignment_epoch})


def encode_member(member: Member) -> bytes:
    """Encode a member; what follows from other nodes or from time is left out."""
    classic = member.classic
    return _encode(
        {
            "instance_id": member.instance_id,
            "rack": member.rack,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "topics": sorted(member.topics),
            "pattern": member.pattern,
            "assignor": member.assignor,
            "epoch": member.epoch,
            "previous_epoch": member.previous_epoch,
            "state": member.state.value,
            "assigned": _partitions(member.assigned),
            "revoking": _partitions(member.revoking),
            "target": _partitions(member.target),
            "classic": None
            if classic is None
            else {
                "session_timeout_ms": classic.session_timeout_ms,
                "protocols": [
                    {"name": name, "metadata": b64encode(metadata).decode()}
                    for name, metadata in classic.protocols
                ],
            },
        }
    )


def decode(nodes: Mapping[str, bytes]) -> tuple[int, int, list[Member]]:
    """Decode the epoch of a group, the epoch of its targets, and its members.

    Raises:
        MalformedGroupError: the nodes do not hold a group of this kind.
    """
    members: list[Member] = []
    epoch = assignment_epoch = -1
    for path, data in nodes.items():
        try:
            node = json.loads(data)
            if node["version"] != _VERSION:
                raise ValueError(f"version {node['version']}")
            if path == _GROUP:
                epoch, assignment_epoch = int(node["epoch"]), int(node["assignment_epoch"])
            else:
                members.append(_member(unescape(path.removeprefix(f"{_GROUP}/")), node))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedGroupError(f"{path}: {error!r}") from error
    if not 0 <= assignment_epoch <= epoch:
        raise MalformedGroupError(f"targets of epoch {assignment_epoch} in a group of {epoch}")
    return epoch, assignment_epoch, members


def _member(member_id: str, node: dict[str, Any]) -> Member:
    classic = node["classic"]
    return Member(
        member_id,
        node["instance_id"],
        node["rack"],
        str(node["client_id"]),
        str(node["client_host"]),
        int(node["rebalance_timeout_ms"]),
        frozenset(map(str, node["topics"])),
        str(node["pattern"]),
        assignor=node["assignor"],
        epoch=int(node["epoch"]),
        previous_epoch=int(node["previous_epoch"]),
        state=MemberState(node["state"]),
        assigned=_read_partitions(node["assigned"]),
        revoking=_read_partitions(node["revoking"]),
        target=_read_partitions(node["target"]),
        classic=None
        if classic is None
        else Classic(
            int(classic["session_timeout_ms"]),
            tuple(
                GroupProtocol(protocol["name"], b64decode(protocol["metadata"]))
                for protocol in classic["protocols"]
            ),
        ),
    )


def _partitions(partitions: Partitions) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id.hex(), []).append(index)
    return by_topic


def _read_partitions(node: dict[str, list[int]]) -> Partitions:
    return frozenset(
        (bytes.fromhex(topic_id), int(index))
        for topic_id, indexes in node.items()
        for index in indexes
    )


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": _VERSION} | fields, separators=(",", ":")).encode()
