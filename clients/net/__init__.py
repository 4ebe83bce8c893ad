"""Connections to brokers, and the way to the right one."""
