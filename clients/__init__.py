"""The SDK: clients of a Qbus or Kafka cluster."""

assert __name__ == "qbus.clients", "import qbus.clients: this folder is a part of the qbus package"
