"""Topics that were compacted by default keep saying so when the default is another one."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from qbus.broker.compaction.remembering import CompactedTopics
from qbus.broker.controller import ConfigChange
from qbus.errors import ApiError, ErrorCode

from .test_cleaner import Plane


class Editor:
    """Edits configurations of topics, or refuses to."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.refusal: ApiError | None = None
        self.edits = 0

    async def alter_topic_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        assert not validate_only
        self.edits += 1
        if self.refusal is None:
            for change in changes:
                topic = self.plane.metadata.topics[change.name]
                await self.plane.metadata.put(replace(topic, config=change.edited(topic.config)))
        return [self.refusal] * len(changes)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = Plane(tmp_path, log_cleanup_policy="compact")
    await plane.start()
    yield plane
    plane.cleaner.stop()
    await plane.stop()


@pytest.fixture
def editor(plane: Plane) -> Editor:
    return Editor(plane)


@pytest.fixture
def topics(plane: Plane, editor: Editor) -> CompactedTopics:
    return CompactedTopics(plane.cleaner, plane.metadata, editor)


async def test_it_is_written_to_those_that_were_compacted(
    plane: Plane, editor: Editor, topics: CompactedTopics
) -> None:
    compacted = await plane.create("compacted", segment_bytes=2000)
    await plane.create("not yet", segment_bytes=2000)
    await plane.fill(compacted, b"1", b"1")
    assert await plane.clean()
    await topics.look()
    assert plane.metadata.topics["compacted"].config["qbus.compacted"] == "true"
    assert "qbus.compacted" not in plane.metadata.topics["not yet"].config
    await topics.look()
    assert editor.edits == 1, "once is enough"


async def test_one_that_asks_for_compaction_says_so_already(
    plane: Plane, editor: Editor, topics: CompactedTopics
) -> None:
    partition = await plane.new("a")
    await plane.fill(partition, b"1", b"1")
    assert await plane.clean()
    await topics.look()
    assert editor.edits == 0


async def test_it_is_still_written_after_the_default_was_taken_back(
    plane: Plane, editor: Editor
) -> None:
    partition = await plane.create("a", segment_bytes=2000)
    await plane.fill(partition, b"1", b"1")
    assert await plane.clean()
    await plane.stop()
    plane.config.set_dynamic({"log.cleanup.policy": "delete"}, {})
    await plane.start()
    assert not plane.partition("a").log.config.compacts
    await CompactedTopics(plane.cleaner, plane.metadata, editor).look()
    assert plane.metadata.topics["a"].config["qbus.compacted"] == "true"
    assert plane.partition("a").log.config.may_have_gaps


async def test_what_cannot_be_written_now_is_tried_again(
    plane: Plane, editor: Editor, topics: CompactedTopics
) -> None:
    partition = await plane.create("a", segment_bytes=2000)
    await plane.fill(partition, b"1", b"1")
    assert await plane.clean()
    editor.refusal = ApiError(ErrorCode.NOT_CONTROLLER, "other writes came first")
    await topics.look()
    editor.refusal = None
    await topics.look()
    assert plane.metadata.topics["a"].config["qbus.compacted"] == "true"


async def test_what_cannot_be_written_is_told_once_and_then_rarely(
    plane: Plane, editor: Editor, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 5.0
    topics = CompactedTopics(plane.cleaner, plane.metadata, editor, lambda: now_s)
    for name in ("a", "b"):
        partition = await plane.create(name, segment_bytes=2000)
        await plane.fill(partition, b"1", b"1")
        assert await plane.clean()
    editor.refusal = ApiError(ErrorCode.INVALID_CONFIG, "segment.bytes is no number")
    told = []
    for pause_s in (0, 10, 10, 1770, 10, 10):
        now_s += pause_s
        caplog.clear()
        await topics.look()
        told.append(len(caplog.records))
    assert told == [2, 0, 0, 0, 2, 0]
    assert editor.edits == 6


async def test_a_topic_whose_trouble_is_over_is_told_of_anew(
    plane: Plane, editor: Editor, topics: CompactedTopics, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await plane.create("a", segment_bytes=2000)
    await plane.fill(partition, b"1", b"1")
    assert await plane.clean()
    editor.refusal = ApiError(ErrorCode.NOT_CONTROLLER, "other writes came first")
    await topics.look()
    assert "topic a was compacted by the default log.cleanup.policy" in caplog.text
    assert "other writes came first" in caplog.text
    topic = plane.metadata.topics["a"]
    await plane.metadata.put(replace(topic, config={**topic.config, "qbus.compacted": "true"}))
    await topics.look()
    await plane.metadata.put(topic)
    caplog.clear()
    await topics.look()
    assert "other writes came first" in caplog.text
