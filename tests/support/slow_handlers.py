"""What held the event loops of servers under test for too long, from their logs.

``QBUS_SLOW_HANDLERS=FILE pytest ...`` has each server's lines appended to FILE when it is gone, and
``python -m tests.support.slow_handlers FILE`` prints a table of them, the longest work first.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

VARIABLE = "QBUS_SLOW_HANDLERS"

_LINE = re.compile(
    r"event_loop\.slow: (?P<handler>.*?)(?: of \S+ \(.*?\))? held the event loop for"
    r" (?P<seconds>[\d.]+) s(?:, at most (?P<cpu>[\d.]+) s of that on the processor)?"
    r"(?:; it stood at (?P<place>[^;]*))?(?:; (?P<more>\d+) times more)?"
)


class Slow(NamedTuple):
    """One line; ``cpu_s``: of the processor, as far as known. ``times``: with unlogged ones."""

    handler: str
    seconds: float
    cpu_s: float
    place: str
    times: int
    line: str


def slow_handlers(log: str) -> Iterator[Slow]:
    """The lines of a server's log about what held its loop."""
    for line in log.splitlines():
        found = _LINE.search(line)
        if found is not None:
            yield Slow(
                found["handler"],
                float(found["seconds"]),
                float(found["cpu"] or 0.0),
                found["place"] or "",
                1 + int(found["more"] or 0),
                line,
            )


def table(found: Iterable[Slow]) -> str:
    """A line for each handler."""
    by_handler: dict[str, list[Slow]] = defaultdict(list)
    for one in found:
        by_handler[one.handler].append(one)
    lines = [f"{'times':>7} {'longest':>8} {'worked':>7}  handler, and where it worked most"]
    for handler, those in sorted(
        by_handler.items(), key=lambda pair: -max(one.cpu_s for one in pair[1])
    ):
        most = max(those, key=lambda one: one.cpu_s)
        times, longest = sum(one.times for one in those), max(one.seconds for one in those)
        lines.append(f"{times:7} {longest:6.3f} s {most.cpu_s:5.3f} s  {handler}  {most.place}")
    return "\n".join(lines)


def keep(log: str) -> None:
    """Append a server's lines to the file that the environment names, if it does."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    lines = "".join(f"{one.line}\n" for one in slow_handlers(log))
    if lines:
        with Path(path).open("a") as file:  # one write: other processes append, too
            file.write(lines)


if __name__ == "__main__":
    print(table(slow_handlers(Path(sys.argv[1]).read_text())))
