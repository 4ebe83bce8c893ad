"""The znodes of a group: where they are and what they hold.

    /consumers/<group>                            JSON: state, generation, protocol, leader, fence
    /consumers/<group>/fence-<fence>              there as long as one coordinator has the group
    /consumers/<group>/ids/<member>               JSON: client, time-outs, protocols, assignment
    /consumers/<group>/owners/<topic>/<p>         the member id that was assigned the partition
    /consumers/<group>/offsets/<topic>/<p>        the committed offset, a plain integer
    /consumers/<group>/offsets/<topic>/<p>/commit JSON: what else belongs to the commit

The fence is a name that a coordinator gives itself for one group, whenever it creates or loads it,
in place of the former one: every write to the group checks that it is still there. So whoever was
coordinator before can write nothing, not even to a group of the same name that was deleted and
created anew, and is as many changes old. Owners are there to be read by people; they follow
from the assignments. What accompanies an offset changes rarely (its time is rounded for that), so
that it lies beside the integer and is written when it changes; an offset without it is one that
someone wrote by hand.

Group, member and client names may hold anything and are escaped; bytes are base64.
"""

import json
from base64 import b64decode, b64encode
from typing import Any, Final

from qbus.errors import QbusError
from qbus.names import escape

from .image import GroupImage, MemberImage
from .offsets import Offset
from .requests import GroupProtocol
from .state import GroupState

ROOT: Final = "/consumers"
_VERSION: Final = 1


class MalformedGroupError(QbusError):
    """A znode that does not hold what this layout says."""


class GroupPaths:
    """Where the znodes of one group are."""

    def __init__(self, group_id: str) -> None:
        self.group = f"{ROOT}/{escape(group_id)}"
        self.ids = f"{self.group}/ids"
        self.owners = f"{self.group}/owners"
        self.offsets = f"{self.group}/offsets"

    def fence(self, name: str) -> str:
        """The node that is there for the coordinator that goes by ``name``."""
        return f"{self.group}/fence-{name}"

    def member(self, member_id: str) -> str:
        """The node of a member."""
        return f"{self.ids}/{escape(member_id)}"

    def owned_topic(self, topic: str) -> str:
        """The folder of a topic's owners. Any name: a leader may assign what does not exist."""
        return f"{self.owners}/{escape(topic)}"

    def committed_topic(self, topic: str) -> str:
        """The folder of a topic's offsets."""
        return f"{self.offsets}/{escape(topic)}"


def commit_path(offset_path: str) -> str:
    """Where the rest of a commit lies, given where its offset is."""
    return f"{offset_path}/commit"


def encode_group(image: GroupImage, since_ms: int, fence: str) -> bytes:
    """A group's own node; ``since_ms`` is when it entered its state."""
    return _encode(
        {
            "state": image.state.value,
            "generation": image.generation,
            "protocol_type": image.protocol_type,
            "protocol": image.protocol,
            "leader": image.leader,
            "timestamp": since_ms,
            "fence": fence,
        }
    )


def with_fence(data: bytes, fence: str) -> tuple[bytes, str | None]:
    """A group's node with another fence, and the one that it had; None: it is older than fences.

    Raises:
        MalformedGroupError: it is no group's.
    """
    node = _decode(data)
    former = node.get("fence")
    if former is not None and not (isinstance(former, str) and former.isalnum()):
        raise MalformedGroupError(f"not a fence: {former!r}")
    return _encode(node | {"fence": fence}), former


def decode_group(data: bytes, members: tuple[MemberImage, ...]) -> tuple[GroupImage, int]:
    """A group and when it entered its state.

    Raises:
        MalformedGroupError: it is none, or its parts contradict each other.
    """
    node = _decode(data)
    try:
        image = GroupImage(
            GroupState(node["state"]),
            int(node["generation"]),
            node["protocol_type"],
            node["protocol"],
            node["leader"],
            members,
        )
        since_ms = int(node["timestamp"])
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedGroupError(f"not a group: {error!r}") from error
    has_members = image.state is not GroupState.EMPTY
    if has_members != bool(members) or image.state is GroupState.DEAD:
        raise MalformedGroupError(f"{image.state.value} with {len(members)} members")
    if has_members and image.leader not in {member.member_id for member in members}:
        raise MalformedGroupError(f"the leader {image.leader} is no member")
    return image, since_ms


def encode_member(member: MemberImage) -> bytes:
    """A member's node."""
    return _encode(
        {
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "session_timeout_ms": member.session_timeout_ms,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "protocols": [
                {"name": name, "metadata": b64encode(metadata).decode()}
                for name, metadata in member.protocols
            ],
            "assignment": b64encode(member.assignment).decode(),
        }
    )


def decode_member(member_id: str, data: bytes) -> MemberImage:
    """A member.

    Raises:
        MalformedGroupError: it is none.
    """
    node = _decode(data)
    try:
        protocols = tuple(
            GroupProtocol(protocol["name"], b64decode(protocol["metadata"]))
            for protocol in node["protocols"]
        )
        return MemberImage(
            member_id,
            node["instance_id"],
            node["client_id"],
            node["client_host"],
            int(node["session_timeout_ms"]),
            int(node["rebalance_timeout_ms"]),
            protocols,
            b64decode(node["assignment"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedGroupError(f"not a member: {error!r}") from error


def encode_offset(offset: Offset) -> bytes:
    """The node of a committed offset."""
    return b"%d" % offset.offset


def encode_commit(offset: Offset) -> bytes:
    """The node beside it."""
    return _encode(
        {
            "leader_epoch": offset.leader_epoch,
            "metadata": offset.metadata,
            "timestamp": offset.committed_at,
            "expires": offset.expires_at,
            "topic_id": offset.topic_id.hex(),
        }
    )


def decode_offset(data: bytes, commit: bytes | None, now_ms: int) -> Offset:
    """A committed offset; one written by hand counts from now.

    Raises:
        MalformedGroupError: it is none.
    """
    try:
        position = int(data)
        if commit is None:
            return Offset(position, committed_at=now_ms)
        node = _decode(commit)
        return Offset(
            position,
            int(node["leader_epoch"]),
            str(node["metadata"]),
            int(node["timestamp"]),
            None if node["expires"] is None else int(node["expires"]),
            bytes.fromhex(node["topic_id"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedGroupError(f"not an offset: {error!r}") from error


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": _VERSION} | fields, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        node = json.loads(data)
    except ValueError as error:
        raise MalformedGroupError(f"not JSON: {error}") from error
    if not isinstance(node, dict) or node.get("version") != _VERSION:
        raise MalformedGroupError("unknown version")
    return node
