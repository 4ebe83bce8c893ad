"""Sends and reads records as Avro by a schema registry: ``BOOTSTRAP REGISTRY TOPIC FIRST LAST``.

It registers the schema, sends the numbers from FIRST to below LAST, reads the topic from its start,
and prints the values that it read as JSON. It runs in Karapace's environment, not in ours.
"""

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "number", "type": "long"},
            {"name": "unit", "type": "string", "default": "m"},
        ],
    }
)
_SECONDS = 60.0


def main(bootstrap: str, registry: str, topic: str, first: str, last: str) -> None:
    client = SchemaRegistryClient({"url": registry})
    context = SerializationContext(topic, MessageField.VALUE)
    serialize = AvroSerializer(client, SCHEMA)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(int(first), int(last)):
        value = serialize({"number": number, "unit": "km"}, context)
        producer.produce(topic, value, partition=0)
    assert producer.flush(_SECONDS) == 0
    deserialize = AvroDeserializer(client, SCHEMA)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "avro"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[object] = []
    deadline = time.monotonic() + _SECONDS
    while len(found) < int(last) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(deserialize(message.value(), context))
    consumer.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
