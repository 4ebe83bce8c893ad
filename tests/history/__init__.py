"""The history of producers and consumers in a real run, and the check that it is consistent.

Every value is unique, so that records can be told apart. ``history`` holds the operations,
``checker`` finds contradictions, ``clients`` record operations, and ``load`` runs the clients.
"""
