"""The status document: bounded, the worst first, the totals of everything."""

import asyncio
import json
import time
from collections.abc import Iterator

from qbus.agent.status import (
    AgentStatus,
    FileState,
    FileStatus,
    SpoolStatus,
    WholeReport,
    document,
    in_slices,
)
from qbus.service.status import encode


def file(path: str, **about: object) -> FileStatus:
    known = {"topic": "t", "inode": 1, "state": FileState.READING, "read": 0, "position": 0}
    return FileStatus(path=path, **{**known, "size": 0, **about})  # type: ignore[arg-type]


def test_files_with_errors_come_first_then_those_with_most_to_deliver() -> None:
    status = AgentStatus(
        files=(
            file("/well", size=10, position=10),
            file("/behind", size=1000),
            file("/broken", error="Permission denied", state=FileState.FAILED),
            file("/further-behind", size=5000),
        )
    )
    paths = [found["path"] for found in document(status)["files"]]
    assert paths == ["/broken", "/further-behind", "/behind", "/well"]


def test_ten_thousand_files_fit_a_node() -> None:
    status = AgentStatus(
        files=tuple(
            file(f"/var/log/{'deep/' * 50}{number}.log", size=number, error="x" * 10_000)
            for number in range(10_000)
        )
    )
    made = document(status)
    assert len(encode(made)) < 300 * 1024
    assert made["files_left_out"] == 10_000 - len(made["files"])
    assert made["files"][0]["size"] == 9_999
    assert made["totals"]["files"] == 10_000
    assert made["totals"]["lag_bytes"] == sum(range(10_000))


def test_totals_count_states_and_take_the_longest_lag() -> None:
    status = AgentStatus(
        files=(
            file("/a", lag_seconds=1.5, rate=10.0),
            file("/b", lag_seconds=0.5, rate=5.0, state=FileState.IDLE),
            file("/c", state=FileState.FAILED),
        ),
        records=7,
        bytes=70,
    )
    totals = document(status)["totals"]
    assert (totals["reading"], totals["idle"], totals["finished"], totals["failed"]) == (1, 1, 0, 1)
    assert (totals["lag_seconds"], totals["rate"], totals["records"]) == (1.5, 15.0, 7)


def test_spools_are_in_the_document() -> None:
    spool = SpoolStatus(directory="/spool", waiting_bytes=5, damaged=1, error="no")
    made = document(AgentStatus(spools=(spool,)))
    assert made["spools"][0]["damaged"] == 1
    assert made["totals"]["spool_bytes"] == 5


def test_a_file_that_shrank_has_no_lag() -> None:
    assert file("/a", size=5, position=9).lag_bytes == 0


def test_file_names_that_are_no_text_are_valid_json() -> None:
    made = document(AgentStatus(files=(file("/log/\udcff"),)))
    assert json.loads(encode(made))["files"][0]["path"] == "/log/\udcff"


async def test_the_whole_document_says_what_the_bounded_one_says_of_all_files() -> None:
    files = tuple(file(f"/{number}\udcff", size=number, error="no") for number in range(500))
    status = AgentStatus(files=files, records=3)
    report = {"version": 1, **document(status, 0)}
    assert report["files_left_out"] == 500
    whole = WholeReport(1 << 30)
    made = json.loads(await whole.encode(report, status))
    assert made == {"version": 1, **document(status, 1 << 30)}
    assert made["files_left_out"] == 0
    changed = AgentStatus(files=(*files[1:], file("/0", size=1000)), records=4)
    made = json.loads(await whole.encode(document(changed, 0), changed))
    assert made == document(changed, 1 << 30)


async def test_the_whole_document_is_bounded_too() -> None:
    status = AgentStatus(files=tuple(file(f"/{number}", size=number) for number in range(500)))
    report = document(status, 0)
    for most in (0, 10, 5000):
        made = json.loads(await WholeReport(most).encode(report, status))
        assert made == document(status, most)


async def test_others_work_while_a_long_status_is_made() -> None:
    turns: list[int] = []
    made: list[int] = []

    async def work() -> None:
        while True:
            turns.append(len(made))
            await asyncio.sleep(0)

    def slow() -> Iterator[int]:
        for number in range(20):
            time.sleep(0.001)
            made.append(number)
            yield number

    working = asyncio.create_task(work())
    assert await in_slices(slow()) == list(range(20))
    working.cancel()
    assert len({turn for turn in turns if 0 < turn < 20}) > 5
