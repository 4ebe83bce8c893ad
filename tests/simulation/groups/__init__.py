"""Coordinators of groups under every fault at once, in virtual time: seeded and replayable.

The coordinators are the broker's own, whole: ``qbus.broker.group``. What is simulated is around
them: an event loop in which time passes at once, an ensemble whose servers lag behind, sessions
that are cut and end, brokers that stand still and die, a network that loses requests and answers,
and members that join, commit, forget their coordinator and die.
"""
