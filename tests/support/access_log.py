"""Access logs for tests, and what is in their lines by a parser of its own."""

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

START = datetime(2026, 1, 1, tzinfo=UTC)

_LINE = re.compile(
    r'(\S+) \S+ \S+ \[([^]]+)\] "([A-Z]+) ([^ "]+) [^"]+" (\d+) (\d+|-) "[^"]*" "[^"]*"'
)


class Hit(NamedTuple):
    """A line's fields, as far as tests look at them."""

    time: datetime
    address: str
    path: str
    status: int
    bytes: int


def generated(count: int, seed: int = 7) -> list[bytes]:
    """``count`` lines over two hours, roughly in order of time, of a few clients and paths."""
    chosen = random.Random(seed)
    lines = []
    for number in range(count):
        time = START + timedelta(seconds=7200 * number / count - chosen.randrange(60))
        address = f"10.0.0.{min(chosen.randrange(1, 20), chosen.randrange(1, 20))}"
        target = f"/page/{chosen.randrange(30)}" + chosen.choice(["", "?q=1"])
        status, size = chosen.choice([(200, chosen.randrange(100_000)), (404, 209), (304, 0)])
        written = time.strftime("%d/%b/%Y:%H:%M:%S +0000")
        line = f'{address} - - [{written}] "GET {target} HTTP/1.1" {status} {size or "-"} "-" "a"'
        lines.append(line.encode())
    return lines


def hits(lines: list[bytes]) -> Iterator[Hit]:
    """The parsed lines."""
    for line in lines:
        found = _LINE.fullmatch(line.decode())
        assert found
        time = datetime.strptime(found[2], "%d/%b/%Y:%H:%M:%S %z")
        size = 0 if found[6] == "-" else int(found[6])
        yield Hit(time, found[1], found[4].partition("?")[0], int(found[5]), size)
