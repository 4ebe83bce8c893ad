"""The fake broker under its former name."""

from tests.support.fake_broker import NODE, FakeBroker, Handler, Hangup, eventually
from tests.support.fake_log import PartitionLog

__all__ = ["NODE", "FakeBroker", "Handler", "Hangup", "PartitionLog", "eventually"]
