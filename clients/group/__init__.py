"""Membership of consumer groups: who reads what, and how far the group has come.

The protocol is Kafka's classic one, as its Java client speaks it: eager and cooperative rebalancing
(KIP-429), static members (KIP-345).
"""
