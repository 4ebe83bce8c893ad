"""Replication under every fault at once, in virtual time: seeded, replayable, checked at each step.

The cluster is one partition on three brokers, a store that does what ZooKeeper does, and a network
that delays, reorders, loses and cuts. The decisions are those of the broker itself:
``qbus.broker.metadata.partition_states``, ``qbus.broker.partition.followers``,
``qbus.broker.replicator.truncation`` and ``qbus.broker.log.epochs``. What is
simulated is everything around them.
"""
