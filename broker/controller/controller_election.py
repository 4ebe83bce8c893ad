"""The election of the controller, through the ephemeral node ``/controller``.

Every write of the controller checks the controller epoch in the store. This broker is the
controller when the metadata cache says so, so a lost answer to its candidacy does no harm.
"""

from qbus.clock import Clock
from qbus.metadata import Create, Delete, MetadataStore, NodeError, Op, Set
from qbus.metadata.errors import MalformedNode
from qbus.metadata.feed import decide
from qbus.metadata.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ChangeNode,
    ControllerEpochNode,
    ControllerNode,
)

from ..metadata.cache import MetadataCache

_UNREGISTERED = -1


class ControllerElection:
    """This broker's candidacy, under the epoch of its registration."""

    def __init__(
        self, store: MetadataStore, metadata: MetadataCache, node_id: int, clock: Clock
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._node_id = node_id
        self._clock = clock
        self.broker_epoch = _UNREGISTERED

    @property
    def is_held(self) -> bool:
        """Whether this broker is the controller, according to its metadata cache."""
        holder = self._metadata.cluster.controller
        return holder is not None and self._is_ours(holder)

    async def stand(self) -> bool:
        """Become the controller unless another broker is; return whether this one is now.

        Raises:
            StoreUnavailable: the store cannot be used.
        """
        holder = self._metadata.cluster.controller
        if not self.is_held and (holder is None or holder.broker == self._node_id):
            try:
                taken = await decide(
                    self._store, [], await self._taking(), ChangeNode(cluster=True)
                )
            except NodeError:  # another broker was faster
                await self._metadata.catch_up()
            else:
                await self._metadata.applied(taken)
        return self.is_held

    async def _taking(self) -> list[Op]:
        ops: list[Op] = []
        found = await self._store.get(CONTROLLER)
        if found is not None and self._is_of_previous_registration(found.data):
            ops.append(Delete(CONTROLLER, found.version))
        node = await self._store.get(CONTROLLER_EPOCH)
        path = CONTROLLER_EPOCH
        if node is None:
            ops.append(Create(path, ControllerEpochNode(1).encode()))
        else:
            epoch = ControllerEpochNode.decode(node.data).epoch + 1
            ops.append(Set(path, ControllerEpochNode(epoch).encode(), node.version))
        holder = ControllerNode(self._node_id, self._clock.time_ms(), self.broker_epoch)
        return [*ops, Create(CONTROLLER, holder.encode(), ephemeral=True)]

    def _is_of_previous_registration(self, data: bytes) -> bool:
        """Whether a previous run of this broker created the node; that run is fenced."""
        try:
            holder = ControllerNode.decode(data)
        except MalformedNode:
            return False
        return holder.broker == self._node_id and not self._is_ours(holder)

    def _is_ours(self, holder: ControllerNode) -> bool:
        return (holder.broker, holder.broker_epoch) == (self._node_id, self.broker_epoch)
