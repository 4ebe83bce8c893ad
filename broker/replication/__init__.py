"""Partitions of this broker: their leader state, what waits for them, and their upkeep."""
