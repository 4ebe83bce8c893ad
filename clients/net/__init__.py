"""Connections to brokers: bootstrap, metadata, routing to the right broker, retries. Knows no
client.
"""
