"""Records that a poll took and a loop over single ones has not been given yet."""

from operator import length_hint

from ..types import ConsumerRecord


class Handing:
    """Records of one partition, on their way to a loop over single ones.

    ``rest`` gives what is left of them. It is the list's own iterator: there is none that is
    quicker, and it knows how far it is.
    """

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self.rest = iter(records)
        self._records = records
        self._first = records[0].offset

    @property
    def read_to(self) -> int:
        """The offset after the last record that was given."""
        given = len(self._records) - length_hint(self.rest)
        return self._records[given - 1].offset + 1 if given else self._first

    def cut(self) -> None:
        """Give no more."""
        self._records.clear()
