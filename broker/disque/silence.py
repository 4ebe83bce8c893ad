"""Which other nodes are silent: nobody who wants an answer soon waits for them."""

import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

from qbus.clock import Clock

from ..delay.log_throttle import LogThrottle
from .errors import CommandError
from .nodes import Node
from .peers import NodeUnavailableError

_log = logging.getLogger(__name__)

_SAY_AGAIN_S: Final = 60.0


class SilentNodes:
    """The nodes that do not say that they are there, until they do.

    A node that takes its time with an answer may wait for a follower, or for its disk. So it is
    greeted: only if that has no answer either, it is silent. Whenever a silent one would be asked
    something, it is greeted again, beside everything else.
    """

    def __init__(
        self,
        greet: Callable[[Node], Coroutine[Any, Any, None]],
        run: Callable[[Coroutine[Any, Any, None]], object],
        clock: Clock,
    ) -> None:
        """``greet`` returns once a node answers, or raises as :class:`.peers.Peers` does."""
        self._greet = greet
        self._run = run
        self._silent: set[str] = set()  # by their names
        self._greeted: set[str] = set()  # whose answer is waited for
        self._lines = LogThrottle(clock, _SAY_AGAIN_S)

    def doubt(self, node: Node) -> None:
        """A node has not answered something in time: see whether it is there."""
        if node.name not in self._greeted:
            self._greeted.add(node.name)
            self._run(self._try(node))

    def discard(self, node: Node) -> None:
        """A node has answered."""
        if node.name in self._silent:
            self._silent.discard(node.name)
            _log.info("node %s at %s answers again", node.name[:8], node.for_nodes)

    def keep(self, names: Collection[str]) -> None:
        """These nodes alone live; those that come back begin anew."""
        self._silent.intersection_update(names)

    def has(self, node: Node) -> bool:
        """Whether a node has not answered of late; if so, it is asked whether it does by now."""
        if node.name not in self._silent:
            return False
        self.doubt(node)
        return True

    async def _try(self, node: Node) -> None:
        try:
            await self._greet(node)
        except CommandError as error:  # it answers, if only that
            _log.debug("node %s refuses to say whether it is there: %s", node.name, error)
        except NodeUnavailableError as error:
            self._fall_silent(node, error)
            return
        finally:
            self._greeted.discard(node.name)
        self.discard(node)

    def _fall_silent(self, node: Node, error: NodeUnavailableError) -> None:
        is_new = node.name not in self._silent
        self._silent.add(node.name)
        if is_new and self._lines.allows():
            _log.warning(
                "node %s does not answer in time (%s): jobs that it has are not waited for until"
                " it does; look at its load, its log and the network (said once a minute at most)",
                node.name[:8],
                error,
            )
        else:
            _log.debug("node %s is silent: %s", node.name, error)
