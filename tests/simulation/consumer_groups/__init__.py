"""Simulation of groups of KIP-848: clients that come, go and die, and a coordinator that fails.

Messages are lost, callbacks take their time, the coordinator restarts with what it stored. At all
times no partition is read by two members; and when everything calms down, each is read by one.
"""
