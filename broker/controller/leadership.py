"""Elections that users ask for, of any number of partitions at once."""

from collections.abc import Collection

from qbus.errors import ApiError, ErrorCode
from qbus.metadata import MetadataStore, StoreError

from ..metadata.cache import MetadataCache
from .elections import StateChange, view_of
from .preferred import ElectionType, elected
from .state_writes import StateWriter

Key = tuple[str, int]


class Leadership:
    """Has replicas lead that somebody wants to."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._writer = StateWriter(store, metadata)

    async def elect(
        self, kind: ElectionType, partitions: Collection[Key] | None
    ) -> dict[Key, ApiError | None]:
        """Elect leaders; of each partition why not, if so.

        None stands for all partitions, of which those are left out that need no election.
        """
        wanted = self._all() if partitions is None else list(dict.fromkeys(partitions))
        outcomes: dict[Key, ApiError | None] = {}
        tried: set[Key] = set()

        def due() -> list[StateChange]:
            changes = []
            for key in wanted:
                if key in outcomes:
                    continue
                try:
                    changes.append(self._change(key, kind))
                    tried.add(key)
                except ApiError as error:
                    is_done = key in tried and error.code is ErrorCode.ELECTION_NOT_NEEDED
                    outcomes[key] = None if is_done else error
            return changes

        try:
            await self._writer.settle(due, lambda: [self._metadata.fence()])
        except StoreError as error:
            unknown = ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"nobody knows whether it was done: {error}"
            )
            outcomes = {key: outcomes.get(key, unknown) for key in wanted}
        if partitions is None:
            return {key: error for key, error in outcomes.items() if not _is_idle(error)}
        return {key: outcomes[key] for key in wanted}

    def _all(self) -> list[Key]:
        return [
            (topic.name, index)
            for topic in self._metadata.topics.values()
            for index in range(len(topic.partitions))
        ]

    def _change(self, key: Key, kind: ElectionType) -> StateChange:
        name, index = key
        topic = self._metadata.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
            )
        partition = topic.partitions[index]
        view = view_of(self._metadata)
        state = elected(partition, kind, view, view.rules(topic))
        return StateChange(topic, index, state, partition.version)


def _is_idle(error: ApiError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
