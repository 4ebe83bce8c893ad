"""Several broker processes on one machine: ``qbus broker --workers N``.

A supervisor forks them and starts again what dies. Each worker is a broker with a node id, a port
and a share of the partitions of its own. Without ZooKeeper a further process, the hub, keeps the
metadata store for all of them; where metrics are wanted, it serves those of all at one address.
"""

import logging

from qbus.config import BrokerConfig

from .plan import left_behind

_log = logging.getLogger(__name__)


def run(config: BrokerConfig, count: int, log_form: str, log_level: str) -> int:
    """Run ``count`` brokers until SIGTERM or SIGINT; one runs in this very process.

    ``log_form`` and ``log_level``: as for :func:`qbus.service.logs.configure`. Returns the exit
    code. Raises what :func:`qbus.broker.server.run` raises.
    """
    for number, held in left_behind(config, count):
        _log.error(
            "worker %d is not started, and holds %d partitions that nobody serves now: start with"
            " --workers %d, move them to other brokers (qbus reassign), and start again",
            number,
            held,
            number,
        )
    if count == 1:
        from ..server import run as run_one  # noqa: PLC0415 - the supervisor imports it itself

        return run_one(config)
    from .supervisor import Supervisor  # noqa: PLC0415 - most brokers run alone

    return Supervisor(config, count, log_form, log_level).run()
