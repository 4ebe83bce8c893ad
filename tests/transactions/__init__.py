"""The history of transactional clients in a real run, and the check that it is consistent.

Each client runs one transaction after the other; each sends unique values and polls with isolation
``read_committed``, and commits its consumer's positions along with what it sent. ``history`` holds
what the clients saw, ``checker`` finds contradictions, ``load`` runs clients.
"""
