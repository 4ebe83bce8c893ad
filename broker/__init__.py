"""The broker: the server that keeps partitions and answers the Kafka protocol."""

assert __name__ == "qbus.broker", "import qbus.broker: this folder is a part of the qbus package"
