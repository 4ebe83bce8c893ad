"""Random transactions over one broker pass the check; a broker that dies ends none half."""

import time
from pathlib import Path

import pytest

from tests.compat import targets

from .checker import assert_correct
from .clients import NAMES
from .history import Outcome
from .load import TransactionalLoad

pytestmark = pytest.mark.compat


@pytest.mark.parametrize("kind", NAMES)
def test_random_transactions_while_the_broker_is_killed(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    with targets.server(request.config.getoption("--target"), tmp_path) as server:
        load = TransactionalLoad(
            server.bootstrap, "random", 1, clients=[kind] * 5, timeout_ms=10_000
        )
        load.start()
        for _ in range(2):
            load.wait_done(50)
            server.kill()
            time.sleep(0.5)
            server.start()
        load.wait_done(50)
        history = load.finish()
    print(history.told(Outcome.COMMITTED), history.told(Outcome.UNKNOWN))
    assert_correct(history)
    assert history.told(Outcome.ABORTED) > 5
    assert sum(len(one.polls) for one in history.transactions) > 20
