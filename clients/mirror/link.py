"""One link of a mirror: a source, a target, and the topics copied from the one to the other."""

from ..cluster import Cluster
from .config import LinkConfig
from .status import LinkStatus


class Link:
    """Copies what ``config`` selects from ``source`` to ``target``, until it is cancelled.

    It keeps nothing: where it goes on is where the target's logs end. Several processes may run the
    same link: they share out its partitions, and take over each other's.
    """

    def __init__(self, config: LinkConfig, source: Cluster, target: Cluster) -> None:
        """The clusters' owner closes them after :meth:`run`."""
        self._config = config
        self._source = source
        self._target = target

    async def run(self) -> None:
        """Mirror until cancelled: then drain what was sent, and leave the group.

        What can pass by itself is tried again for ever, and told of by :meth:`status` meanwhile.
        Raises :class:`~qbus.errors.QbusError` for what cannot: a refused group, say.
        """

    def status(self) -> LinkStatus:
        """How it is going: every partition that this process copies, or would if it could."""
        config = self._config
        return LinkStatus(name=config.name, source=config.source, target=config.target)
