"""Ranges of offsets that do not overlap, each with a value."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class Span(Generic[V]):
    """The offsets from ``first`` to ``last``, both included, and their value."""

    __slots__ = ("first", "last", "value")

    def __init__(self, first: int, last: int, value: V) -> None:
        self.first = first
        self.last = last
        self.value = value


class RangeMap(Generic[V]):
    """A value for each offset that has one. Neighbours with equal values are one range.

    Takes memory for each range, however long it is; looking one up takes a bisection.
    """

    __slots__ = ("_before", "_firsts", "_lasts", "_mark", "_values", "size")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._values: list[V] = []
        self.size = 0
        """How many offsets have a value."""
        self._mark = 0  # an offset, and how many before it have a value
        self._before = 0

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[Span[V]]:
        for number in range(len(self._firsts)):
            yield Span(self._firsts[number], self._lasts[number], self._values[number])

    def _at(self, offset: int) -> int:
        """The number of the range that has ``offset``, or of the first one behind it."""
        return bisect_left(self._lasts, offset)

    def at(self, offset: int) -> V | None:
        """The value of ``offset``, if it has one."""
        number = self._at(offset)
        if number < len(self._firsts) and self._firsts[number] <= offset:
            return self._values[number]
        return None

    @property
    def end(self) -> int:
        """The offset behind all that have a value."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def find(self, offset: int) -> Span[V] | None:
        """The range that has ``offset``, if one has."""
        number = self._at(offset)
        if number < len(self._firsts) and self._firsts[number] <= offset:
            return Span(self._firsts[number], self._lasts[number], self._values[number])
        return None

    def lowest(self) -> Span[V] | None:
        """The range with the lowest offsets."""
        if not self._firsts:
            return None
        return Span(self._firsts[0], self._lasts[0], self._values[0])

    def spans(self, first: int, last: int) -> list[Span[V]]:
        """What of the ranges lies from ``first`` to ``last``, ascending."""
        firsts, lasts = self._firsts, self._lasts
        found = []
        number = self._at(first)
        while number < len(firsts) and firsts[number] <= last:
            begin, end = max(firsts[number], first), min(lasts[number], last)
            found.append(Span(begin, end, self._values[number]))
            number += 1
        return found

    def set(self, first: int, last: int, value: V) -> None:
        """Give the offsets from ``first`` to ``last`` this value."""
        firsts, lasts, values = self._firsts, self._lasts, self._values
        if not firsts or first > lasts[-1]:
            number = len(firsts)
        else:
            if self._has_any(first, last):
                self.cut(first, last)
            number = bisect_right(firsts, first)
        self._count(first, last, 1)
        joins_left = number > 0 and lasts[number - 1] == first - 1 and values[number - 1] == value
        joins_right = (
            number < len(firsts) and firsts[number] == last + 1 and values[number] == value
        )
        if joins_left and joins_right:
            lasts[number - 1] = lasts[number]
            del firsts[number], lasts[number], values[number]
        elif joins_left:
            lasts[number - 1] = last
        elif joins_right:
            firsts[number] = first
        else:
            firsts.insert(number, first)
            lasts.insert(number, last)
            values.insert(number, value)

    def replace(self, first: int, last: int, value: V) -> bool:
        """Give a range of just these offsets another value, which no neighbour has.

        False: there is no such range, and nothing has changed.
        """
        number = self._at(first)
        if (
            number == len(self._firsts)
            or self._firsts[number] != first
            or self._lasts[number] != last
        ):
            return False
        self._values[number] = value
        return True

    def _count(self, first: int, last: int, sign: int) -> None:
        self.size += sign * (last - first + 1)
        if first < self._mark:
            self._before += sign * (min(last, self._mark - 1) - first + 1)

    def size_from(self, offset: int) -> int:
        """How many offsets from ``offset`` on have a value.

        Cheap for an offset that moves on: what lies between that and the last one is counted.
        """
        if offset < self._mark:
            self._mark = self._before = 0
        if offset > self._mark:
            for span in self.spans(self._mark, offset - 1):
                self._before += span.last - span.first + 1
            self._mark = offset
        return self.size - self._before

    def count_from(self, offset: int) -> int:
        """How many ranges have offsets from ``offset`` on."""
        return len(self._firsts) - self._at(offset)

    def _has_any(self, first: int, last: int) -> bool:
        number = self._at(first)
        return number < len(self._firsts) and self._firsts[number] <= last

    def cut(self, first: int, last: int) -> list[Span[V]]:
        """Take the values of the offsets from ``first`` to ``last`` away; what they were."""
        firsts, lasts, values = self._firsts, self._lasts, self._values
        begin = number = self._at(first)
        if number < len(firsts) and firsts[number] == first and lasts[number] == last:
            removed = [Span(first, last, values[number])]
            del firsts[number], lasts[number], values[number]
            self._count(first, last, -1)
            return removed
        removed = []
        while number < len(firsts) and firsts[number] <= last:
            low, high = max(firsts[number], first), min(lasts[number], last)
            removed.append(Span(low, high, values[number]))
            self._count(low, high, -1)
            number += 1
        if not removed:
            return removed
        left_first, right_last = firsts[begin], lasts[number - 1]
        left_value, right_value = values[begin], values[number - 1]
        new_firsts: list[int] = []
        new_lasts: list[int] = []
        new_values: list[V] = []
        if left_first < first:
            new_firsts.append(left_first)
            new_lasts.append(first - 1)
            new_values.append(left_value)
        if right_last > last:
            new_firsts.append(last + 1)
            new_lasts.append(right_last)
            new_values.append(right_value)
        firsts[begin:number] = new_firsts
        lasts[begin:number] = new_lasts
        values[begin:number] = new_values
        return removed

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges from ``first`` to ``last`` that have no value, ascending."""
        found = []
        for span in self.spans(first, last):
            if span.first > first:
                found.append((first, span.first - 1))
            first = span.last + 1
        if first <= last:
            found.append((first, last))
        return found
