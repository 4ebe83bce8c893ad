"""The Kafka protocol on the broker's side: dispatch, one handler for each API, waiting requests."""
