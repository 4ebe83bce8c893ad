"""`qbus context` with a real cluster."""

import json
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def anywhere(tmp_path: Path) -> Qbus:
    """The command of somebody who has named no cluster yet."""
    qbus = Qbus("")
    del qbus.environment["QBUS_BOOTSTRAP"]
    qbus.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    return qbus


def test_a_context_finds_the_cluster_when_the_named_broker_is_gone(
    anywhere: Qbus, broker: BrokerProcess, tmp_path: Path
) -> None:
    gone = "127.0.0.1:1"
    anywhere("context", "use", "here", "--bootstrap", f"{gone},{broker.bootstrap}")
    anywhere("topic", "list")
    file = tmp_path / "qbus" / "contexts.json"
    document = json.loads(file.read_text())
    assert document["contexts"]["here"]["brokers"] == [broker.bootstrap]
    # What is left when the brokers that a person named were replaced by others since:
    document["contexts"]["here"]["bootstrap"] = gone
    file.write_text(json.dumps(document))
    for command in ("topic list", "group list", "cluster status", "consume ^none --exit-at-end"):
        anywhere(*command.split())
    anywhere("produce", "contextual", stdin=b"found\n")
    assert anywhere("consume", "contextual", "--exit-at-end") == b"found\n"
