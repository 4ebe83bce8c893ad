"""The first manifest that follows the last one binds; the bookmark only says where to read."""

import pytest

from qbus.clients.spark.sink.history import Bookmark, History, StagingLost
from qbus.clients.spark.sink.manifest import NO_BATCH, Manifest, ProducerIdentity


def manifest(batch: int, previous: int, attempt: str) -> Manifest:
    return Manifest("q", batch, attempt, previous, ProducerIdentity(1, 0), (), {}, {}, {})


def opened(bookmark: Bookmark, log_start: int = 0, log_end: int = 100) -> History:
    return History(bookmark, log_start, log_end)


def read(history: History, *manifests: Manifest) -> History:
    for offset, each in enumerate(manifests, 10):
        history.add(each, offset)
    return history


def test_nothing_yet() -> None:
    history = opened(Bookmark(5))
    assert (history.batch, history.is_published, history.manifest) == (NO_BATCH, True, None)


def test_the_first_of_two_binds() -> None:
    history = read(opened(Bookmark(5)), manifest(0, -1, "mine"), manifest(0, -1, "late"))
    assert history.bookmark == Bookmark(10, 0, "mine", is_published=False)


def test_a_manifest_after_an_unknown_batch_does_not_bind() -> None:
    history = read(
        opened(Bookmark(5)), manifest(0, -1, "a"), manifest(1, -1, "stale"), manifest(2, 1, "gap")
    )
    assert (history.batch, history.bookmark.attempt) == (0, "a")


def test_batches_may_be_left_out() -> None:
    history = read(opened(Bookmark(5)), manifest(3, -1, "a"), manifest(9, 3, "b"))
    assert (history.batch, history.is_published) == (9, False)


def test_the_bookmarks_own_manifest_is_found_and_published() -> None:
    history = read(opened(Bookmark(10, 4, "a")), manifest(4, 3, "a"))
    assert history.manifest == manifest(4, 3, "a")
    assert history.is_published
    assert history.bookmark == Bookmark(10, 4, "a")


def test_a_bookmark_that_was_put_back_is_overtaken() -> None:
    history = read(opened(Bookmark(10, 4, "a")), manifest(4, 3, "a"), manifest(5, 4, "b"))
    assert (history.batch, history.is_published) == (5, False)
    history.published()
    assert history.bookmark == Bookmark(11, 5, "b")


def test_a_bookmark_reads_as_it_was_written() -> None:
    for mark in (Bookmark(7), Bookmark(9, 3, "x"), Bookmark(9, 3, "x", is_published=False)):
        assert Bookmark.of(mark.offset, mark.metadata) == mark


@pytest.mark.parametrize("metadata", ["", "{}", "null", "[]", '{"batch": "x", "state": "bound"}'])
def test_a_foreign_commit_is_not_a_bookmark(metadata: str) -> None:
    with pytest.raises(StagingLost, match="has reset the group"):
        Bookmark.of(3, metadata)


def test_a_bound_manifest_must_not_age_out() -> None:
    assert opened(Bookmark(5, 2, "a"), log_start=50).batch == 2
    with pytest.raises(StagingLost, match="batch 2 was being published"):
        opened(Bookmark(5, 2, "a", is_published=False), log_start=50)


def test_a_published_batch_does_not_need_the_old_staging_topic() -> None:
    history = opened(Bookmark(70, 2, "a"), log_end=50)
    assert history.bookmark == Bookmark(50, 2, "a")
    history.check()
    with pytest.raises(StagingLost, match=r"batch 2 was being published .*created anew"):
        opened(Bookmark(70, 2, "a", is_published=False), log_end=50)


def test_a_new_staging_topic_may_have_grown_past_the_old_one() -> None:
    history = read(opened(Bookmark(5, 2, "a", is_published=False)), manifest(7, 6, "other"))
    with pytest.raises(StagingLost, match=r"batch 2 was being published .*created anew"):
        history.check()
