"""Queues of jobs over the Kafka protocol: the same that Disque's commands add to and take from."""

from .queue import Job, JobGivenUp, Queue

__all__ = ["Job", "JobGivenUp", "Queue"]
