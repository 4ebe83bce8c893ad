"""What fetching counts."""


class Counts:
    """Sums since the start, of all leaders together."""

    __slots__ = ("bytes", "corrupt", "failures", "repairs", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.failures = 0
        self.corrupt = 0
        self.repairs = 0
