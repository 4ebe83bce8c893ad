"""What the replicas need of the cluster's metadata."""

from collections.abc import Collection, Mapping
from typing import Protocol

from qbus.config import TopicConfig
from qbus.metadata import Check

from ..metadata.cache import Subscriber
from ..metadata.image import BrokerInfo, Topic
from ..metadata.reader import Cluster


class Metadata(Protocol):
    """The metadata cache, as far as it matters here."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Those that exist now, by name."""

    @property
    def topics_by_id(self) -> Mapping[bytes, Topic]:
        """The same, by id."""

    @property
    def suspected(self) -> set[tuple[str, int]]:
        """The partitions that may be led elsewhere by now, although this broker last led them."""

    def subscribe(self, subscriber: Subscriber, *, is_first: bool = False) -> None:
        """Tell ``subscriber`` what becomes different, and wait for what it returns.

        ``is_first``: before all that are not.
        """

    async def deleted_topics(self) -> Collection[bytes]:
        """The ids of topics that were deleted not long ago. Raises StoreUnavailable."""

    def topic_config(self, topic: Topic) -> TopicConfig:
        """The configuration in force for a topic."""

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The brokers that live, by id."""

    @property
    def cluster(self) -> Cluster:
        """Who is there, and who decides."""

    def fence(self) -> Check:
        """The check that goes with whatever is decided from what is known here."""

    def is_live(self, broker: int, epoch: int) -> bool:
        """Whether a broker is registered under ``epoch``, and not about to leave."""
