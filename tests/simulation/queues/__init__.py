"""Queues of one partition under faults: the pure parts of the broker, and a model of its log."""
