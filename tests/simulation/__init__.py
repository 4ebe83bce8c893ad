"""Simulates replication under all faults at once, in virtual time, from a seed.

The cluster is one partition on three brokers, a store that behaves like ZooKeeper, and a network
that delays, reorders, loses and cuts. The decisions are made by the broker's own code:
``qbus.broker.metadata.partition_states``, ``qbus.broker.partition.followers``,
``qbus.broker.replicator.truncation_offset`` and ``qbus.broker.log.epochs``. Everything around it is
simulated. The invariants are checked at every step.
"""
