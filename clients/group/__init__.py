"""Membership of consumer groups: the assignment of partitions, and committed offsets.

Kafka's classic protocol, as its Java client speaks it: eager and cooperative rebalancing (KIP-429),
static members (KIP-345).
"""
