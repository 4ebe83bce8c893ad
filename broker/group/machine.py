"""What the registry asks of a group, of whatever kind it is.

A group follows one of two protocols. In the classic one (:mod:`.group`) a member assigns the
partitions; in that of KIP-848 the broker does. Both are pure state machines over the same fence,
the same writer and the same committed offsets, and a group may change from one to the other while
it has members. The registry knows the two only by the protocols below: this package does not import
the second kind, which stands on it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from qbus.errors import ErrorCode

from .group import GroupImage
from .requests import ConsumerHeartbeat, Effect, Request
from .state import GroupState


class GroupMachine(Protocol):
    """One group: requests and the passing of time in, effects out. Times are monotonic seconds."""

    @property
    def group_id(self) -> str:
        """The group's id."""

    @property
    def kind(self) -> str:
        """What kind of group it is, for the log."""

    @property
    def state(self) -> GroupState:
        """The state, by the names that clients see."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of the members; None: there never were any."""

    @property
    def wake_at(self) -> float:
        """When :meth:`tick` is due."""

    @property
    def is_vacant(self) -> bool:
        """Whether there are no members and no ids given to future members."""

    def takes(self, request: Request) -> bool:
        """Whether a group of this kind can handle such a request."""

    def handle(self, request: Request, now: float) -> list[Effect]:
        """Handle a request that it takes; every request is answered once, perhaps later."""

    def tick(self, now: float) -> list[Effect]:
        """Handle the passing of time."""

    def topics_changed(self, names: Collection[str], now: float, /) -> list[Effect]:
        """Take in that topics came, went or grew."""

    def admit_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: float
    ) -> ErrorCode:
        """Decide whether offsets may be committed."""

    def admit_fetch(self, member_id: str | None, epoch: int, /) -> ErrorCode:
        """Decide whether somebody may read the committed offsets.

        ``member_id`` None and ``epoch`` -1: it does not say that it is a member.
        """

    def is_subscribed(self, topic: str) -> bool:
        """Whether members read this topic, so that offsets of it are kept."""

    def dissolve(self, error: ErrorCode) -> list[Effect]:
        """Refuse everything parked and die: the group is deleted, unloaded or replaced."""

    def turn_away(self, error: ErrorCode) -> list[Effect]:
        """Refuse everything parked; the members stay."""

    def image(self) -> GroupImage:
        """What the group's own node and its classic members' nodes hold."""

    def nodes(self) -> Mapping[str, bytes]:
        """What else is stored of the group: contents by path below the group's node.

        Parents come before what is below them.
        """


class GroupKinds(Protocol):
    """Makes groups that are not classic ones, and turns one kind into the other."""

    async def resolve(self, request: ConsumerHeartbeat) -> object:
        """Find the topics that a request's pattern matches; they are known while the result lives.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """

    async def prepare(self, group_id: str, nodes: Mapping[str, bytes]) -> object:
        """Find the topics that a stored group's patterns match, as :meth:`resolve` does."""

    def follow_topics(self, changed: Callable[[], None]) -> None:
        """Compare new topics with the patterns; ``changed`` is called later if one matches any."""

    def close(self) -> None:
        """Stop what :meth:`follow_topics` began."""

    def restore(
        self, group_id: str, image: GroupImage, nodes: Mapping[str, bytes], now: float
    ) -> GroupMachine:
        """Restore a group that has ``nodes``; all time-outs start again.

        Raises:
            MalformedGroupError: the nodes do not hold a group.
        """

    def convert(self, group: GroupMachine, request: Request, now: float) -> GroupMachine:
        """Return the group that is to take the place of one which does not take a request.

        Raises:
            ApiError: the group keeps its kind.
        """

    def successor(self, group: GroupMachine, now: float) -> GroupMachine | None:
        """Return the group that is to take the place of one whose members are of the other kind."""
