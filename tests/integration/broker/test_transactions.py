"""A client that asks for transactions learns at once that there are none."""

from pathlib import Path

import confluent_kafka
import pytest

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

_PATIENCE_S = 20


def test_librdkafka_is_refused_for_good(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
        )
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            producer.init_transactions(_PATIENCE_S)
    error = refused.value.args[0]
    assert error.fatal()
    assert "this broker does not serve transactions" in error.str()
