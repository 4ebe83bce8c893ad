"""The event loop of a server, watched: how long each of its ticks takes, and what took so long.

Everything that a server does shares one loop: while one callback runs, nobody else is served. A
:class:`WatchedLoop` reads the clock twice a tick. A tick beyond the limit is logged and counted by
what it did (:mod:`.slow`); a thread looks at the loop from outside (:mod:`.watchdog`), says where
it stands while it stands, and finds out which callback it was. :class:`.ticks.Ticks` is what the
others know of the loop's life: a session with ZooKeeper lasts only while the loop moves.
"""

from qbus.service.event_loop.loop import WatchedLoop, run, ticks_of
from qbus.service.event_loop.slow import SlowHandlers
from qbus.service.event_loop.ticks import NEVER, Ticks

__all__ = ["NEVER", "SlowHandlers", "Ticks", "WatchedLoop", "run", "ticks_of"]
