"""The promises of the SDK: one suite for sync and async clients, Qbus and Apache Kafka.

`faults` puts a proxy that does harm between client and broker, `storms` lets the members of groups
come and go, `hostile` answers with lies. What chance decides follows a seed that is printed:
``QBUS_SEED=7 pytest tests/sdk`` repeats it. ``-m nightly`` goes on for many minutes.
"""
