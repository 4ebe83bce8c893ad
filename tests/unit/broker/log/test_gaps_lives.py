"""Whatever happens to a mirror's log, readers find what its source had, and a true end."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.broker.log import Log, LogConfig, OsFiles, Provenance
from qbus.clock import ManualClock
from qbus.records import iter_batches

from .mirrored import edited
from .test_following import joined, placed

CONFIG = LogConfig(
    qbus_mirror_source="a", segment_bytes=700, index_interval_bytes=1, retention_ms=-1
)

_FAR = 2**30
"""Beyond that a segment may begin behind the gap: it stays, though it is empty."""


class Batch(NamedTuple):
    """How many offsets are left out before it and at its end, and how many records it has."""

    gap: int
    hole: int
    records: int
    size: int


BATCHES = st.builds(
    Batch,
    gap=st.sampled_from((0, 0, 0, 1, 7, 2**31 - 3, 2**31, 2**33)),
    hole=st.sampled_from((0, 0, 3)),
    records=st.integers(1, 3),
    size=st.integers(0, 200),
)
STEPS = st.one_of(
    st.lists(BATCHES, min_size=1, max_size=4),
    st.tuples(st.sampled_from(("truncate", "delete")), st.floats(0, 1)),
    st.sampled_from(("retain", "close", "crash", "scrub")),
)


class Life:
    """A log, and the offsets of the batches that it should have."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._clock = ManualClock()
        self.log = self._open(0, 0, clean=True)
        self.spans: list[tuple[int, int]] = []

    def _open(self, recovery_point: int, start: int, *, clean: bool) -> Log:
        return Log.open(
            self._directory,
            CONFIG,
            self._clock,
            OsFiles(),
            recovery_point=recovery_point,
            log_start_offset=start,
            clean=clean,
        )

    def append(self, batches: list[Batch]) -> None:
        follows = offset = self.log.log_end_offset
        sent = []
        for one in batches:
            offset += one.gap
            made = placed(offset, *[b"v" * one.size] * one.records)
            last = offset + one.records - 1 + one.hole
            sent.append(edited(made, last_offset_delta=last - offset))
            self.spans.append((offset, last))
            offset = last + 1
        data = memoryview(bytearray(joined(*sent)))
        self.log.append_mirrored(data, Provenance("a", "", follows), 0)

    def cut(self, how: str, share: float) -> None:
        """Take away what is before, or from, one of the edges of batches, or beside it."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        edges = [edge + by for span in self.spans for edge in span for by in (-1, 0, 1)]
        inside = [edge for edge in sorted(edges) if start <= edge <= end] or [end]
        at = inside[int(share * (len(inside) - 1))]
        if how == "delete":
            self.log.delete_records_before(at)
            self.spans = [span for span in self.spans if span[1] >= at]
            return
        expected = self.log.truncation_point(at)
        assert self.log.truncate_to(at) == expected
        gone = [span for span in self.spans if span[1] >= at]
        self.spans = [span for span in self.spans if span[1] < at]
        if self.spans and gone:
            end = self.spans[-1][1] + 1
            assert expected == end or expected - end > _FAR

    def do(self, what: str) -> None:
        log = self.log
        if what == "scrub":
            while not log.scrub(300):
                pass
            return
        log.flush()
        if what == "retain":
            log.apply_retention()
            return
        point, start = log.checkpoint(), log.log_start_offset
        if what == "close":
            log.close()
        else:
            log.abandon()
        self.log = self._open(point, start, clean=what == "close")

    def check(self) -> None:
        log = self.log
        assert log.corruptions == ()
        for first, last in self.spans:
            for offset in {max(at, log.log_start_offset) for at in (first - 1, first, last)}:
                found = log.read(offset, 1, wait=True)
                assert found is not None
                with found:
                    ((header, _),) = iter_batches(found.read())
                    assert header.last_offset >= offset
                    assert (header.base_offset, header.last_offset) in self.spans
        found_spans, offset = [], log.log_start_offset
        while (part := log.read(offset, 1 << 20, wait=True)) is not None:
            with part:
                headers = [header for header, _ in iter_batches(part.read())]
                found_spans += [(one.base_offset, one.last_offset) for one in headers]
                offset = part.next_offset
        assert found_spans == self.spans


@settings(max_examples=40)
@given(st.lists(STEPS, max_size=12))
def test_every_life(steps: list[list[Batch] | tuple[str, float] | str]) -> None:
    with TemporaryDirectory() as directory:
        life = Life(str(Path(directory) / "a.t-0"))
        for step in steps:
            if isinstance(step, list):
                life.append(step)
            elif isinstance(step, tuple):
                life.cut(*step)
            else:
                life.do(step)
            life.check()
