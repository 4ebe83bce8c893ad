"""Seeds that differ from run to run, and not between the processes that share one."""

import os
import random


def new_seed() -> int:
    """``QBUS_SEED`` if that is set, to repeat a run; else a number that all its workers get."""
    given = os.environ.get("QBUS_SEED")
    if given is not None:
        return int(given)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")  # set where tests run in several processes
    return random.Random(run).randrange(10**6)
