"""Every request the clients make can be said in the oldest versions they speak."""

from qbus.clients import Consumer, Producer
from qbus.clients.net.versions import SPOKEN
from qbus.wire import ApiKey
from tests.support.fake_broker import FakeBroker
from tests.support.polling import flat
from tests.unit.clients.consumer.fake_group import FakeGroup

OLDEST = {api: (low, low) for api, (low, _) in SPOKEN.items()}


async def test_produce_consume_and_commit() -> None:
    async with FakeBroker({"t": 2}, OLDEST) as broker:
        FakeGroup(broker)
        async with Producer(broker.bootstrap) as producer:
            await producer.send_many("t", [b"value"] * 10)
            await producer.send("t", b"value", key=b"k", headers=[("h", b"x")])
        async with Consumer(
            broker.bootstrap, group="g", instance_id="i", offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["t"])
            count = 0
            while count < 11:
                count += len(flat(await consumer.poll(0.05)))
            await consumer.commit()
        spoken = {(api, version) for api, version, _ in broker.requests}
        assert spoken >= {
            (api, low)
            for api, (low, _) in OLDEST.items()
            if api in {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT}
        }
