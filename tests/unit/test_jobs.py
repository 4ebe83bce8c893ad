"""Jobs: ids that say where a job is, options in headers, names of queues."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.delay import TTL
from qbus.jobs import (
    JOB,
    MAX_OFFSET,
    MAX_PARTITION,
    MAX_SECONDS,
    JobIds,
    JobOptions,
    encode_id,
    has_form,
    node_name,
    parse_id,
    queue_of,
    read_options,
    topic_of,
)

TOPIC = bytes(range(100, 116))
OTHER = bytes(range(100, 115)) + b"x"
NODE = node_name("cluster", 1)
DAY = JobOptions(86_400, 300, node=NODE[:8])


def an_id(**changes: object) -> str:
    fields: dict = {
        "topic_id": TOPIC,
        "partition": 3,
        "offset": 77,
        "options": DAY,
        "seconds": 1_700_000_000,
        **changes,
    }
    return encode_id(**fields)


class TestIds:
    def test_has_disques_form(self) -> None:
        assert re.fullmatch(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-05a1", an_id())

    @given(
        st.integers(0, MAX_PARTITION),
        st.integers(0, MAX_OFFSET),
        st.integers(0, MAX_SECONDS),
        st.booleans(),
    )
    def test_says_where_the_job_is(
        self, partition: int, offset: int, seconds: int, delayed: bool
    ) -> None:
        options = DAY._replace(delay=5 if delayed else 0)
        text = an_id(partition=partition, offset=offset, seconds=seconds, options=options)
        job = parse_id(text)
        assert job is not None
        assert job.is_in(TOPIC)
        assert (job.partition, job.offset, job.seconds) == (partition, offset, seconds)
        assert (job.is_delayed, job.topic_tag, job.node) == (delayed, TOPIC[:4], NODE[:8])

    def test_those_of_a_partition_are_made_one_after_another(self) -> None:
        ids, once = JobIds(TOPIC, 3), DAY._replace(retry=0)
        for offset, options in enumerate([DAY, DAY, once, DAY, once._replace(delay=9)]):
            made = ids.encode(offset, options, 7, is_delayed=options.delay > 0)
            assert made.decode() == an_id(offset=offset, options=options, seconds=7)

    def test_knows_its_topic_from_others_that_begin_alike(self) -> None:
        job = parse_id(an_id())
        assert job is not None
        assert not job.is_in(OTHER)

    @pytest.mark.parametrize("position", [3, 12, 20, 30, 37, 39])
    def test_one_that_was_changed_is_of_no_topic(self, position: int) -> None:
        text = an_id()
        changed = "b" if text[position] != "b" else "c"
        job = parse_id(text[:position] + changed + text[position + 1 :])
        assert job is None or not job.is_in(TOPIC)

    @pytest.mark.parametrize(
        ("options", "ends"),
        [
            (JobOptions(86_400, 300), "05a1"),
            (JobOptions(86_400, 0), "05a0"),
            (JobOptions(60, 6), "0001"),
            (JobOptions(1, 1), "0001"),
            (JobOptions(1, 0), "0000"),
            (JobOptions(None, 30), "ffff"),
            (JobOptions(10**9, 0), "fffe"),
        ],
    )
    def test_ends_with_the_minutes_odd_for_at_least_once(
        self, options: JobOptions, ends: str
    ) -> None:
        text = an_id(options=options)
        assert text[36:] == ends
        job = parse_id(text)
        assert job is not None
        assert job.is_at_most_once is (options.retry == 0)

    def test_a_time_out_of_range_is_cut(self) -> None:
        job = parse_id(an_id(seconds=-5))
        assert job is not None
        assert job.seconds == 0

    @pytest.mark.parametrize("changes", [{"partition": MAX_PARTITION + 1}, {"offset": -1}])
    def test_has_no_room_for_everything(self, changes: dict) -> None:
        with pytest.raises(ValueError, match="no job id has room"):
            an_id(**changes)

    @pytest.mark.parametrize(
        ("text", "formed"),
        [
            (b"D-f563cad4-WaUMDP8hYS+gYAWOTmMhIRa8-05a0", True),
            (b"D-f563cad4-????????????????????????-zzzz", True),
            (b"D-f563cad4-WaUMDP8hYS+gYAWOTmMhIRa8-05a", False),
            (b"E-f563cad4-WaUMDP8hYS+gYAWOTmMhIRa8-05a0", False),
            (b"D-f563cad4_WaUMDP8hYS+gYAWOTmMhIRa8-05a0", False),
            (b"D-f563cad4-WaUMDP8hYS+gYAWOTmMhIRa8_05a0", False),
            (b"", False),
        ],
    )
    def test_form_is_what_disque_looks_at(self, text: bytes, formed: bool) -> None:
        assert has_form(text) is formed

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "D-f563cad4-????????????????????????-05a0",
            "D-f563cad4-WaUMDP8hYS+gYAWOTmMhIRa8-zzzz",
            b"D-f563cad4-WaUMDP8hYS+gYAWOTmMhIRa\xff-05a0",
        ],
    )
    def test_what_is_none_is_none(self, text: str | bytes) -> None:
        assert parse_id(text) is None

    @given(st.text(max_size=60) | st.binary(max_size=60))
    def test_nothing_breaks_the_parser(self, text: str | bytes) -> None:
        job = parse_id(text)
        assert job is None or not job.is_in(TOPIC)


class TestOptions:
    @pytest.mark.parametrize(
        "options",
        [DAY, JobOptions(60, 0, 10, 1), JobOptions(1, 1, 0, 3, "0123abcd")],
    )
    def test_travel_in_headers(self, options: JobOptions) -> None:
        assert read_options(options.headers(), retry=7) == options

    def test_the_time_to_live_of_a_delayed_job_counts_from_when_it_is_due(self) -> None:
        assert dict(JobOptions(60, 5, 10).headers()) == {JOB: b"60,5,10,1,00000000", TTL: b"50s"}

    def test_a_record_without_them_has_no_end(self) -> None:
        assert read_options([("other", b"1")], retry=30) == JobOptions(None, 30)
        assert JobOptions(None, 30).headers() == ()

    @pytest.mark.parametrize(
        "value", [None, b"", b"1,2,3,4", b"1,2,3,4,x", b"1,-2,3,4,00000000", b"9" * 30]
    )
    def test_headers_that_say_nothing_count_for_nothing(self, value: bytes | None) -> None:
        assert read_options([(JOB, value)], retry=30) == JobOptions(None, 30)


class TestNames:
    @pytest.mark.parametrize(
        ("queue", "topic"),
        [
            (b"emails", "emails"),
            (b"a.b-c_D9", "a.b-c_D9"),
            (b"emails:high", "disque-x.emails-3ahigh"),
            (b"a-b c", "disque-x.a-2db-20c"),
            ("größe".encode(), "disque-x.gr-c3-b6-c3-9fe"),
            (b"disque-x.a", "disque-x.disque-2dx.a"),
            (b"__consumer_offsets", "disque-x.__consumer_offsets"),
            (b".", "disque-x.."),
            (b"\x00\xff", "disque-x.-00-ff"),
        ],
    )
    def test_are_topics_names(self, queue: bytes, topic: str) -> None:
        assert topic_of(queue) == topic
        assert queue_of(topic) == queue

    @given(st.binary(min_size=1, max_size=60))
    def test_are_all_different(self, queue: bytes) -> None:
        assert queue_of(topic_of(queue)) == queue

    @pytest.mark.parametrize("queue", [b"", b"x" * 250, b":" * 81])
    def test_have_limits(self, queue: bytes) -> None:
        with pytest.raises(ValueError, match="name"):
            topic_of(queue)

    def test_a_topic_that_only_looks_escaped_is_itself(self) -> None:
        assert queue_of("disque-x.a-zz") == b"disque-x.a-zz"


def test_a_node_has_forty_hexadecimal_digits_always_the_same() -> None:
    assert re.fullmatch("[0-9a-f]{40}", NODE)
    assert node_name("cluster", 1) == NODE
    assert len({node_name("cluster", number) for number in range(100)}) == 100
    assert node_name("another", 1) != NODE
