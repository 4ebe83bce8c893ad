"""Kafka's DumpLogSegments reads the files of a mirror, whatever its offsets leave out."""

import re
from pathlib import Path

import pytest

from perf.peers import java, kafka
from qbus.broker.log import Log, LogConfig, OsFiles, Provenance
from qbus.clock import SystemClock
from qbus.records import build_batch, set_base_offset
from tests.support.tools import skip_because_of

pytestmark = pytest.mark.compat

START = 5_000_000
FAR = START + 2**33
OFFSETS = (START + 3, START + 4, START + 100, START + 2**31 - 9, FAR, FAR + 7)

_GAP = re.compile(r"Non-consecutive offsets in \S+\n(  -?\d+ is followed by \d+\n)+")


def batch(offset: int) -> bytearray:
    made = build_batch([(None, b"v" * 500, (), 1_700_000_000_000 + offset % 1000)])
    set_base_offset(made, offset, 0)
    return made


def test_kafkas_tool_remarks_on_gaps_alone(tmp_path: Path) -> None:
    skip_because_of(kafka.missing())
    config = LogConfig(qbus_mirror_source="a", index_interval_bytes=1)
    log = Log.open(str(tmp_path / "a.orders-0"), config, SystemClock(), OsFiles())
    for offset in OFFSETS:
        said = Provenance("a", "", log.log_end_offset, START)
        log.append_mirrored(memoryview(batch(offset)), said, 0)
    log.close()
    files = [
        str(path)
        for path in sorted((tmp_path / "a.orders-0").iterdir())
        if path.suffix in {".log", ".index", ".timeindex"}
    ]
    result = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--deep-iteration", "--files", ",".join(files)),
        options=java.SHORT_RUN_OPTIONS,
    )
    told = result.stdout.decode()
    assert result.returncode == 0, result.stderr.decode()
    assert _GAP.sub("", result.stderr.decode()) == ""
    assert tuple(map(int, re.findall(r"baseOffset: (\d+)", told))) == OFFSETS
    assert set(re.findall(r"isvalid: (\w+)", told)) == {"true"}
    indexed = {int(offset) for offset in re.findall(r"offset: (\d+) position: [1-9]", told)}
    assert indexed == {START + 4, START + 100, START + 2**31 - 9, FAR + 7}
