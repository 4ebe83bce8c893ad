"""Compares a topic with its archive, or with its copy in another cluster.

Both sides are first summarized by partition and interval, with a checksum of the records. Only
intervals that differ are compared record by record (:mod:`.comparison`).
"""
