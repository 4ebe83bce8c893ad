"""The controller's office: who holds it decides, and whatever they write, the store checks that.

Who holds it is what the store says, as known here: so an answer that was lost, after which nobody
knows whether the office was taken, does no harm.
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
    """This broker's hold on the office, under the epoch of its registration."""

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
        """Whether this broker is the controller, as far as it knows."""
        holder = self._metadata.cluster.controller
        return holder is not None and self._is_ours(holder)

    async def stand(self) -> bool:
        """Become the controller, unless another broker is; whether this one is now.

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
        if found is not None and self._is_of_a_former_life(found.data):
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

    def _is_of_a_former_life(self, data: bytes) -> bool:
        """Whether the node is of this broker before it was started anew, and fenced that one."""
        try:
            holder = ControllerNode.decode(data)
        except MalformedNode:
            return False
        return holder.broker == self._node_id and not self._is_ours(holder)

    def _is_ours(self, holder: ControllerNode) -> bool:
        return (holder.broker, holder.broker_epoch) == (self._node_id, self.broker_epoch)
