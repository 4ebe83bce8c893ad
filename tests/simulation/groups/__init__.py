"""Simulates group coordinators under all faults at once, in virtual time, from a seed.

The coordinators are the broker's own, ``qbus.broker.group``. Simulated are an event loop in which
time passes at once, an ensemble whose servers lag behind, sessions that are cut and end, brokers
that pause and crash, a network that loses requests and answers, and members that join, commit,
forget their coordinator and die.
"""
