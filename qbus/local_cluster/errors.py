"""What keeps a local cluster from running."""

from qbus.errors import QbusError


class LocalClusterError(QbusError):
    """The message says what is wrong, and what to do about it."""
