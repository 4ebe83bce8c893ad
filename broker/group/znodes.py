"""The znodes of a group: their paths and contents, and the transactions that change them.

    /consumers/<group>                            JSON: state, generation, protocol, leader, fence
    /consumers/<group>/fence-<fence>              exists while one coordinator has the group
    /consumers/<group>/ids/<member>               JSON: client, time-outs, protocols, assignment
    /consumers/<group>/owners/<topic>/<p>         the member id that was assigned the partition
    /consumers/<group>/offsets/<topic>/<p>        the committed offset, a plain integer
    /consumers/<group>/offsets/<topic>/<p>/commit JSON: what else belongs to the commit
    /consumers/<group>/consumer                   JSON: a group of KIP-848 (broker/consumer_group)
    /consumers/<group>/consumer/<member>          JSON: a member of such a group
    /consumers/<group>/pending/<id>-<epoch>       JSON: offsets that a producer's transaction brings

With the layout ``topic``, a topic's offsets are in one node instead, which a commit of many
partitions writes once::

    /consumers/<group>/offsets/<topic>            JSON: all its offsets, by what else they have

Both layouts are read. A topic changes its layout with the next commit to it. While that is under
way, in several transactions if there are many partitions, the topic's node has data and there are
nodes below it: then its data count, and loading deletes what is below.

The fence is a random name that a coordinator chooses whenever it creates or loads a group; it
replaces the former fence. Every write to the group checks that the fence still exists. So a former
coordinator can write nothing, not even to a group of the same name that was deleted, created again,
and has reached the same version. Owners are derived from the assignments, for people to read. The
data beside an offset changes rarely (its time is rounded for that purpose), so it is a node of its
own that is written when it changes. An offset without that node was written by hand.

Group, member and client names may hold anything and are escaped; bytes are base64.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar
from uuid import uuid4

from qbus.consumer_protocol import CONSUMER, decode_assignment
from qbus.errors import QbusError, WireError
from qbus.metadata import Check, Create, Delete, Op, Set
from qbus.names import escape

from .group import GroupImage
from .members import MemberImage
from .offsets import Offset, TopicPartition, is_of_other
from .requests import GroupProtocol
from .state import GroupState

ROOT: Final = "/consumers"
_VERSION: Final = 1

MAX_OPS: Final = 1_000  # of a transaction
_MAX_BYTES: Final = 800_000  # of paths and data; ZooKeeper takes 1 MiB with its framing
_MAX_OWNERS: Final = 10_000  # per group; owners are not written beyond that
_MAX_IN_ONE_NODE: Final = 1_000  # offsets of a topic; of more, each has a node of its own

T = TypeVar("T")

ProducerEpoch = tuple[int, int]
"""A producer's id and epoch, which stand for its transaction."""


class OffsetsLayout(Enum):
    """Whether each committed offset has a node of its own, or all of a topic share one."""

    PARTITION = "partition"
    TOPIC = "topic"


class MalformedGroupError(QbusError):
    """A znode does not follow this layout."""


class GroupPaths:
    """The paths of one group's znodes."""

    def __init__(self, group_id: str) -> None:
        self.group = f"{ROOT}/{escape(group_id)}"
        self.ids = f"{self.group}/ids"
        self.owners = f"{self.group}/owners"
        self.offsets = f"{self.group}/offsets"
        self.pending = f"{self.group}/pending"
        self._topics: dict[str, str] = {}

    def fence(self, name: str) -> str:
        """The node of the fence ``name``."""
        return f"{self.group}/fence-{name}"

    def member(self, member_id: str) -> str:
        """The node of a member."""
        return f"{self.ids}/{escape(member_id)}"

    def owned_topic(self, topic: str) -> str:
        """The parent of a topic's owners; the topic may not exist, as the leader names it."""
        return f"{self.owners}/{escape(topic)}"

    def committed_topic(self, topic: str) -> str:
        """The folder of a topic's offsets."""
        folder = self._topics.get(topic)
        if folder is None:
            folder = self._topics[topic] = f"{self.offsets}/{escape(topic)}"
        return folder

    def transaction(self, producer: ProducerEpoch) -> str:
        """The node of the offsets that a producer's open transaction brings."""
        return f"{self.pending}/{producer[0]}-{producer[1]}"


def commit_path(offset_path: str) -> str:
    """Return the path of the node beside a committed offset."""
    return f"{offset_path}/commit"


def encode_group(image: GroupImage, since_ms: int, fence: str) -> bytes:
    """Encode a group's own node; ``since_ms`` is when the group entered its state."""
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
    """Replace the fence in a group's node; return the node and the former fence, if it had one.

    Raises:
        MalformedGroupError: the node does not hold a group.
    """
    node = _decode(data)
    former = node.get("fence")
    if former is not None and not (isinstance(former, str) and former.isalnum()):
        raise MalformedGroupError(f"not a fence: {former!r}")
    return _encode(node | {"fence": fence}), former


def decode_group(data: bytes, members: tuple[MemberImage, ...]) -> tuple[GroupImage, int]:
    """Decode a group and the time at which it entered its state.

    Raises:
        MalformedGroupError: the node does not hold a group, or contradicts its members.
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
    """Encode a member's node."""
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
    """Decode a member.

    Raises:
        MalformedGroupError: the node does not hold a member.
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
    """Encode the node of a committed offset."""
    return b"%d" % offset.offset


def encode_commit(offset: Offset) -> bytes:
    """Encode the node beside a committed offset."""
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
    """Decode a committed offset; one written by hand counts as committed now.

    Raises:
        MalformedGroupError: the nodes do not hold an offset.
    """
    try:
        position = int(data)
        if commit is None:
            return Offset(position, committed_at=now_ms)
        return Offset(position, *_other(_decode(commit)))
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedGroupError(f"not an offset: {error!r}") from error


def encode_topic(offsets: Mapping[int, Offset]) -> bytes:
    """Encode all offsets of a topic: positions by partition, once for each commit's other data."""
    positions: dict[tuple[Any, ...], dict[str, int]] = {}
    for partition, offset in offsets.items():
        positions.setdefault(offset[1:], {})[str(partition)] = offset.offset
    commits = [
        {
            "leader_epoch": leader_epoch,
            "metadata": metadata,
            "timestamp": timestamp,
            "expires": expires,
            "topic_id": topic_id.hex(),
            "offsets": some,
        }
        for (leader_epoch, metadata, timestamp, expires, topic_id), some in positions.items()
    ]
    return _encode({"commits": commits})


def decode_topic(data: bytes) -> dict[int, Offset]:
    """Decode all offsets of a topic.

    Raises:
        MalformedGroupError: the node does not hold offsets.
    """
    node = _decode(data)
    offsets: dict[int, Offset] = {}
    try:
        for commit in node["commits"]:
            other = _other(commit)
            for partition, position in commit["offsets"].items():
                offsets[int(partition)] = Offset(int(position), *other)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MalformedGroupError(f"not a topic's offsets: {error!r}") from error
    return offsets


def encode_pending(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Encode the offsets that a transaction brings."""
    topics: dict[str, Any] = {
        topic: json.loads(encode_topic(some)) for topic, some in _by_topic(offsets).items()
    }
    return _encode({"topics": topics})


def decode_pending(data: bytes) -> dict[TopicPartition, Offset]:
    """Decode the offsets that a transaction brings.

    Raises:
        MalformedGroupError: the node does not hold them.
    """
    node = _decode(data)
    try:
        topics = {topic: json.dumps(some).encode() for topic, some in node["topics"].items()}
    except (KeyError, AttributeError) as error:
        raise MalformedGroupError(f"not a transaction's offsets: {error!r}") from error
    return {
        (topic, partition): offset
        for topic, some in topics.items()
        for partition, offset in decode_topic(some).items()
    }


def decode_producer(name: str) -> ProducerEpoch:
    """Decode the name of a transaction's node.

    Raises:
        MalformedGroupError: it is not one.
    """
    producer_id, dash, epoch = name.partition("-")
    if not (dash and producer_id.isdecimal() and epoch.isdecimal()):
        raise MalformedGroupError(f"not a producer: {name}")
    return int(producer_id), int(epoch)


def _other(commit: dict[str, Any]) -> tuple[int, str, int, int | None, bytes]:
    """What belongs to a commit besides the position."""
    return (
        int(commit["leader_epoch"]),
        str(commit["metadata"]),
        int(commit["timestamp"]),
        None if commit["expires"] is None else int(commit["expires"]),
        bytes.fromhex(commit["topic_id"]),
    )


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


@dataclass(slots=True)
class GroupChange:
    """A change of a group to store.

    ``image`` is set if the group itself changed; ``since_ms`` is when it entered its state.
    ``offsets`` are to be stored, or deleted (None). ``pending`` are what transactions bring, by
    producer; None: the transaction is over. ``remove`` deletes the whole group. ``nodes`` is what
    else is stored with the image, all of it, by path below the group's node.
    """

    image: GroupImage | None = None
    since_ms: int = 0
    offsets: dict[TopicPartition, Offset | None] = field(default_factory=dict)
    pending: dict[ProducerEpoch, dict[TopicPartition, Offset] | None] = field(default_factory=dict)
    remove: bool = False
    nodes: Mapping[str, bytes] = field(default_factory=dict)


class GroupZnodes:
    """The known content of one group's znodes, updated with each transaction that succeeds.

    ``fence`` is the name that this coordinator chose. ``shared`` are the topics whose offsets are
    in one node. ``pending`` are the offsets that open transactions bring. ``topic_ids``: see
    :class:`.offsets.PresentOffsets`.
    """

    def __init__(self, group_id: str, layout: OffsetsLayout = OffsetsLayout.PARTITION) -> None:
        """``layout``: how offsets are to be stored from now on."""
        self.paths = GroupPaths(group_id)
        self._layout = layout
        self.version: int | None = None  # of the group's node; None while there is none
        self.fence = _new_fence()
        self.members: dict[str, bytes] = {}
        self.owners: dict[str, dict[int, str]] = {}
        self.nodes: dict[str, bytes] = {}
        self.offsets: dict[str, dict[int, Offset]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.shared: set[str] = set()
        self.pending: dict[ProducerEpoch, dict[TopicPartition, Offset]] = {}
        self.has_pending_folder = False

    def plan(self, change: GroupChange) -> list[list[Op]]:
        """Plan the transactions for a change: one, unless it is too large.

        A group and its members change in one transaction. What does not fit into it follows or,
        when the group is removed, precedes it. Each transaction checks the fence.
        """
        if change.remove:
            return self._plan_removal()
        group, rest = self._plan_group(change), list[Op]()
        if change.image is not None:
            group += self._plan_members(_members_of(change.image))
            rest += self._plan_owners(_owners_of(change.image))
            rest += self._plan_nodes(change.nodes)
        for topic, partitions in _by_topic(change.offsets).items():
            rest += self._plan_offsets(topic, partitions)
        rest += self._plan_pending(change.pending)
        if _fit(group + rest):
            return [group + rest]
        return [group, *_fenced(self._check, rest)]

    def apply(self, change: GroupChange) -> None:
        """Record that the transactions of a change succeeded."""
        if change.remove:
            self.version = None
            self.fence = _new_fence()
            self.members, self.owners, self.nodes = {}, {}, {}
            self.offsets, self.topic_ids, self.pending = {}, {}, {}
            self.shared, self.has_pending_folder = set(), False
            return
        if change.image is not None:
            self.version = 0 if self.version is None else self.version + 1
            self.members = _members_of(change.image)
            self.owners = _owners_of(change.image)
            self.nodes = dict(change.nodes)
        for topic, partitions in _by_topic(change.offsets).items():
            offsets = self.offsets.setdefault(topic, {})
            _change(offsets, partitions)
            self._note_ids(topic, partitions)
            if offsets and self._is_shared(len(offsets)):
                self.shared.add(topic)
            else:
                self.shared.discard(topic)
            if not offsets:
                del self.offsets[topic]
        for producer, brought in change.pending.items():
            if brought is None:
                self.pending.pop(producer, None)
            else:
                self.pending[producer] = brought
                self.has_pending_folder = True

    def _note_ids(self, topic: str, partitions: Mapping[int, Offset | None]) -> None:
        """Forget of which topic all offsets of a name are where others have come."""
        known = self.topic_ids.get(topic)
        if known is not None and (
            not self.offsets[topic]
            or any(one is not None and is_of_other(known, one) for one in partitions.values())
        ):
            del self.topic_ids[topic]

    def _is_shared(self, count: int) -> bool:
        """Whether one node is to hold this number of offsets of a topic."""
        return self._layout is OffsetsLayout.TOPIC and count <= _MAX_IN_ONE_NODE

    @property
    def _fence(self) -> str:
        return self.paths.fence(self.fence)

    @property
    def _check(self) -> Check:
        return Check(self._fence)

    def _plan_group(self, change: GroupChange) -> list[Op]:
        paths, image = self.paths, change.image
        if image is None:
            assert self.version is not None, "a group that is not stored needs an image"
            return [self._check]
        data = encode_group(image, change.since_ms, self.fence)
        if self.version is not None:
            return [self._check, Set(paths.group, data, self.version)]
        below = (self._fence, paths.ids, paths.owners, paths.offsets)
        return [Create(paths.group, data), *map(Create, below)]

    def _plan_members(self, members: Mapping[str, bytes]) -> list[Op]:
        ops: list[Op] = [
            Delete(self.paths.member(member_id))
            for member_id in self.members
            if member_id not in members
        ]
        for member_id, data in members.items():
            if member_id not in self.members:
                ops.append(Create(self.paths.member(member_id), data))
            elif data != self.members[member_id]:
                ops.append(Set(self.paths.member(member_id), data))
        return ops

    def _plan_owners(self, owners: Mapping[str, Mapping[int, str]]) -> list[Op]:
        ops: list[Op] = []
        for topic in {**self.owners, **owners}:
            old, new = self.owners.get(topic, {}), owners.get(topic, {})
            folder = self.paths.owned_topic(topic)
            if not old:
                ops.append(Create(folder, b""))
            ops += [Delete(f"{folder}/{partition}") for partition in old if partition not in new]
            for partition, member_id in new.items():
                if partition not in old:
                    ops.append(Create(f"{folder}/{partition}", member_id.encode()))
                elif old[partition] != member_id:
                    ops.append(Set(f"{folder}/{partition}", member_id.encode()))
            if not new:
                ops.append(Delete(folder))
        return ops

    def _plan_nodes(self, nodes: Mapping[str, bytes]) -> list[Op]:
        group, known = self.paths.group, self.nodes
        gone = [path for path in known if path not in nodes]
        ops: list[Op] = [Delete(f"{group}/{path}") for path in reversed(gone)]
        for path, data in nodes.items():
            if path not in known:
                ops.append(Create(f"{group}/{path}", data))
            elif data != known[path]:
                ops.append(Set(f"{group}/{path}", data))
        return ops

    def _plan_offsets(self, topic: str, partitions: Mapping[int, Offset | None]) -> list[Op]:
        old = self.offsets.get(topic, {})
        folder = self.paths.committed_topic(topic)
        if topic in self.shared or self._becomes_shared(old, partitions):
            return self._plan_shared(topic, folder, old, partitions)
        ops: list[Op] = []
        left = len(old)
        for partition, offset in partitions.items():
            path = f"{folder}/{partition}"
            known = old.get(partition)
            if offset is not None:
                left += known is None
                ops += _plan_offset(path, known, offset)
            elif known is not None:
                left -= 1
                ops += [Delete(commit_path(path)), Delete(path)]
        if not old and left:
            ops.insert(0, Create(folder, b""))
        if old and not left:
            ops.append(Delete(folder))
        return ops

    def _becomes_shared(
        self, old: Mapping[int, Offset], partitions: Mapping[int, Offset | None]
    ) -> bool:
        """Whether one node is to hold a topic's offsets after a change."""
        if self._layout is not OffsetsLayout.TOPIC:
            return False
        new = dict(old)
        _change(new, partitions)
        return bool(new) and self._is_shared(len(new))

    def _plan_shared(
        self,
        topic: str,
        folder: str,
        old: Mapping[int, Offset],
        partitions: Mapping[int, Offset | None],
    ) -> list[Op]:
        """Plan where one node is to hold a topic's offsets, or did so far."""
        new = dict(old)
        _change(new, partitions)
        if not new:
            return [Delete(folder)]
        ops: list[Op] = []
        if not self._is_shared(len(new)):  # the data count until all of it lies below
            for partition, offset in new.items():
                ops += _plan_offset(f"{folder}/{partition}", None, offset)
            return [*ops, Set(folder, b"")]
        data = encode_topic(new)
        if not old:
            return [Create(folder, data)]
        if topic not in self.shared:
            for partition in old:
                path = f"{folder}/{partition}"
                ops += [Delete(commit_path(path)), Delete(path)]
        return [Set(folder, data), *ops]

    def _plan_pending(
        self, pending: Mapping[ProducerEpoch, dict[TopicPartition, Offset] | None]
    ) -> list[Op]:
        ops: list[Op] = []
        for producer, offsets in pending.items():
            path, is_stored = self.paths.transaction(producer), producer in self.pending
            if offsets is None:
                ops += [Delete(path)] if is_stored else []
            elif is_stored:
                ops.append(Set(path, encode_pending(offsets)))
            else:
                ops.append(Create(path, encode_pending(offsets)))
        if not self.has_pending_folder and any(isinstance(op, Create) for op in ops):
            ops.insert(0, Create(self.paths.pending))
        return ops

    def _plan_removal(self) -> list[list[Op]]:
        if self.version is None:
            return []
        content = self._plan_owners({}) + self._plan_nodes({})
        for topic, partitions in self.offsets.items():
            content += self._plan_offsets(topic, dict.fromkeys(partitions))
        content += self._plan_pending(dict.fromkeys(self.pending))
        folders = [self.paths.ids, self.paths.owners, self.paths.offsets]
        if self.has_pending_folder:
            folders.append(self.paths.pending)
        group: list[Op] = [Delete(self._fence), *self._plan_members({}), *map(Delete, folders)]
        group.append(Delete(self.paths.group, self.version))
        if _fit(group + content):
            return [content + group]
        return [*_fenced(self._check, content), group]


def _new_fence() -> str:
    return uuid4().hex


def _fit(ops: list[Op]) -> bool:
    return len(ops) <= MAX_OPS and sum(map(_size, ops)) <= _MAX_BYTES


def _size(op: Op) -> int:
    second = op[1]  # data, or a version
    return len(op.path) + (len(second) if isinstance(second, bytes) else 0)


def _fenced(fence: Op, ops: list[Op]) -> list[list[Op]]:
    parts: list[list[Op]] = []
    size = _MAX_BYTES
    for op in ops:
        size += _size(op)
        if size > _MAX_BYTES or len(parts[-1]) == MAX_OPS:
            parts.append([fence])
            size = _size(fence) + _size(op)
        parts[-1].append(op)
    return parts


def _plan_offset(path: str, old: Offset | None, new: Offset) -> list[Op]:
    if old is None:
        return [
            Create(path, encode_offset(new)),
            Create(commit_path(path), encode_commit(new)),
        ]
    ops: list[Op] = []
    if old.offset != new.offset:
        ops.append(Set(path, encode_offset(new)))
    if old[1:] != new[1:]:
        ops.append(Set(commit_path(path), encode_commit(new)))
    return ops


def _by_topic(offsets: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    topics: dict[str, dict[int, T]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[partition] = offset
    return topics


def _change(offsets: dict[int, Offset], partitions: Mapping[int, Offset | None]) -> None:
    """Change the offsets of a topic."""
    for partition, offset in partitions.items():
        if offset is None:
            offsets.pop(partition, None)
        else:
            offsets[partition] = offset


def _members_of(image: GroupImage) -> dict[str, bytes]:
    return {member.member_id: encode_member(member) for member in image.members}


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none if it is illegible, because clients wrote it."""
    try:
        return decode_assignment(assignment)
    except WireError:
        return ()


def _owners_of(image: GroupImage) -> dict[str, dict[int, str]]:
    if image.protocol_type != CONSUMER:
        return {}
    owned = [
        (topic, partition, member.member_id)
        for member in image.members
        for topic, partition in _assigned(member.assignment)
    ]
    return _owners(owned) if len(owned) <= _MAX_OWNERS else {}


def _owners(owned: Iterable[tuple[str, int, str]]) -> dict[str, dict[int, str]]:
    owners: dict[str, dict[int, str]] = {}
    for topic, partition, member_id in owned:
        owners.setdefault(topic, {})[partition] = member_id
    return owners
