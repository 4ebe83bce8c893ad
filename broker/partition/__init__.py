"""Partitions of this broker: roles, high watermarks, in-sync replicas, background tasks."""
