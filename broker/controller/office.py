"""The controller's office: who holds it decides, and whatever they write, the store checks that."""

from qbus.clock import Clock
from qbus.errors import ApiError, ErrorCode
from qbus.metadata import Check, Create, MetadataStore, NodeExists, Op, Set, VersionConflict
from qbus.metadata.feed import announce
from qbus.metadata.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ChangeNode,
    ControllerEpochNode,
    ControllerNode,
)


class Office:
    """This broker's hold on the office; ``epoch`` counts the controllers the cluster has had."""

    def __init__(self, store: MetadataStore, node_id: int, clock: Clock) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._version: int | None = None
        self.epoch = 0

    @property
    def is_held(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._version is not None

    async def take(self) -> bool:
        """Become the controller, unless another broker is; whether this one is now.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        while not self.is_held:
            node = await self._store.get(CONTROLLER_EPOCH)
            epoch = 1 if node is None else ControllerEpochNode.decode(node.data).epoch + 1
            data = ControllerEpochNode(epoch).encode()
            path = CONTROLLER_EPOCH
            bump = Create(path, data) if node is None else Set(path, data, node.version)
            holder = ControllerNode(self._node_id, self._clock.time_ms())
            try:
                await self._store.transaction(
                    [
                        bump,
                        Create(CONTROLLER, holder.encode(), ephemeral=True),
                        announce(ChangeNode(cluster=True).encode()),
                    ]
                )
            except (VersionConflict, NodeExists) as error:
                if error.path == CONTROLLER:
                    return False
                continue
            self.epoch = epoch
            self._version = 0 if node is None else node.version + 1
        return True

    def lose(self) -> None:
        """Another broker has the office."""
        self._version = None

    def fence(self) -> Op:
        """The check that goes with everything the controller writes.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        if self._version is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "another broker is the controller")
        return Check(CONTROLLER_EPOCH, self._version)
