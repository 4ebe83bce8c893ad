"""The share session with one broker: what it says, and what becomes of that. Pure.

Each request of a session carries its epoch, which counts up. The first, a fetch of epoch 0, opens
the session; it names the partitions to take records of, later ones name only changes. A session
that one side lost begins anew, and everything that was acquired in it goes back to the group.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages import share_acknowledge as acknowledging
from qbus.wire.messages import share_fetch as fetching

from ..errors import api_error
from ..types import TopicPartition, by_topic
from .acknowledgements import Ack, Acks, AckType, PendingAcks, ranges_of
from .options import ShareOptions
from .types import RecordPlace

_OPENING = 0
_CLOSING = -1
_LAST_EPOCH = 2**31 - 1
_BY_RECORDS = 1


class Lease(NamedTuple):
    """What a record was acquired under: a session, as it was before it was last lost.

    The lock ends at ``until``, on the monotonic clock, unless it was renewed.
    """

    session: "ShareSession"
    life: int
    until: float = math.inf

    @property
    def is_valid(self) -> bool:
        """Whether the broker still counts the record as this member's, as far as is known."""
        return self.life == self.session.life

    @property
    def is_fresh(self) -> bool:
        """Whether work on the record may still begin: it is valid, and the lock has not run out."""
        return self.is_valid and time.monotonic() < self.until


class Loss(NamedTuple):
    """A record that what was said of did not count, and why."""

    place: RecordPlace
    error: ApiError


class Sent(NamedTuple):
    """A request in flight: what its records are acquired under, and what it acknowledges."""

    lease: Lease
    acks: Acks


class ShareSession:
    """The session with broker ``node``. ``life`` counts how often it was lost.

    ``is_fetching`` and ``is_acknowledging``: such a request is in flight. ``is_hurried``: another
    was sent to have the fetch in flight answered.
    """

    def __init__(
        self,
        options: ShareOptions,
        member_id: str,
        node: int,
        begun_anew: Callable[[], object] = lambda: None,
    ) -> None:
        """``begun_anew`` is called when it was lost."""
        self.node = node
        self.life = 0
        self.pending = PendingAcks()
        self.is_fetching = False
        self.is_acknowledging = False
        self.is_hurried = False
        self._options = options
        self._member_id = member_id
        self._epoch = _OPENING
        self._known: set[TopicPartition] = set()
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._in_flight: list[Sent] = []
        self._begun_anew = begun_anew

    @property
    def is_open(self) -> bool:
        """Whether there is something to be closed."""
        return self._epoch != _OPENING

    @property
    def is_waited_for(self) -> bool:
        """Whether something that was sent has no outcome yet."""
        return any(sent.acks for sent in self._in_flight)

    @property
    def is_idle(self) -> bool:
        """Whether everything that was said has its outcome."""
        return not self.pending and not self.is_waited_for

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic with an id that the session was told."""
        return self._names.get(topic_id)

    def recreated(self, wanted: Mapping[TopicPartition, bytes]) -> list[str]:
        """Return the topics of ``wanted`` that the session knows by another id."""
        return sorted(
            {
                topic
                for (topic, _), topic_id in wanted.items()
                if self._ids.get(topic, topic_id) != topic_id
            }
        )

    # Requests.

    def fetch(
        self, wanted: Mapping[TopicPartition, bytes], max_wait: float, limit: int | None = None
    ) -> tuple[fetching.ShareFetchRequest, Sent]:
        """Return a request for records of ``wanted``, each with the id of its topic.

        It acknowledges what there is to be said of them. ``limit``: the most records, where it is
        they that are taken and not batches.
        """
        assert not self.recreated(wanted), "acknowledgements would go to another topic"
        for (topic, _), topic_id in wanted.items():
            self._ids[topic] = topic_id
            self._names[topic_id] = topic
        epoch = self._count()
        among = wanted.keys() & self._known
        # The first may acknowledge nothing. What somebody waits for goes by itself: this may take
        # until there are records. So do renewals, which a request for records must not have.
        is_mute = epoch == _OPENING or self.pending.is_awaited(among)
        acks: Acks = {} if is_mute else self.pending.take(among)
        named = (wanted.keys() - self._known) | acks.keys()
        forgotten = self._known - wanted.keys()
        options = self._options
        most = options.max_poll_records
        if options.by_records and limit is not None:
            most = min(options.max_run, limit)
        request = fetching.ShareFetchRequest(
            group_id=options.group,
            member_id=self._member_id,
            share_session_epoch=epoch,
            max_wait_ms=int(max_wait * 1000),
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            max_records=most,
            batch_size=most,
            share_acquire_mode=_BY_RECORDS if options.by_records else 0,
            topics=[
                fetching.FetchTopic(
                    topic_id=self._ids[topic],
                    partitions=[
                        fetching.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(acks, topic, index),
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(sorted(named)).items()
            ],
            forgotten_topics_data=[
                fetching.ForgottenTopic(topic_id=self._ids[topic], partitions=indexes)
                for topic, indexes in by_topic(sorted(forgotten)).items()
            ],
        )
        self._known = set(wanted)
        return request, self._send(acks)

    def acknowledge(
        self, *, is_last: bool = False
    ) -> tuple[acknowledging.ShareAcknowledgeRequest, Sent]:
        """Return a request that says what there is to be said; ``is_last``: it ends the session."""
        acks = self.pending.take()
        epoch = self._count()
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self._options.group,
            member_id=self._member_id,
            share_session_epoch=_CLOSING if is_last else epoch,
            is_renew_ack=any(ack.type is AckType.RENEW for said in acks.values() for ack in said),
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id=self._ids[topic],
                    partitions=[
                        acknowledging.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=_batches(acks, topic, index),
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(sorted(acks)).items()
            ],
        )
        return request, self._send(acks)

    def _count(self) -> int:
        epoch = self._epoch
        self._epoch = epoch + 1 if epoch < _LAST_EPOCH else 1
        return epoch

    def _send(self, acks: Acks) -> Sent:
        sent = Sent(Lease(self, self.life), acks)
        self._in_flight.append(sent)
        return sent

    # Outcomes.

    def fetched(self, sent: Sent, response: fetching.ShareFetchResponse) -> list[Loss]:
        """Note what a broker that fetched says of the acknowledgements; return what is lost."""
        return self._answered(
            sent,
            {
                TopicPartition(self._names.get(topic.topic_id, ""), data.partition_index): (
                    data.acknowledge_error_code,
                    data.acknowledge_error_message,
                )
                for topic in response.responses
                for data in topic.partitions
            },
        )

    def acknowledged(
        self, sent: Sent, response: acknowledging.ShareAcknowledgeResponse
    ) -> list[Loss]:
        """Note what a broker says of the acknowledgements; return what is lost."""
        return self._answered(
            sent,
            {
                TopicPartition(self._names.get(topic.topic_id, ""), data.partition_index): (
                    data.error_code,
                    data.error_message,
                )
                for topic in response.responses
                for data in topic.partitions
            },
        )

    def failed(self, sent: Sent, error: ApiError) -> list[Loss]:
        """Begin anew after a request without an answer, or one that refused the session.

        Returns what is lost: everything that was not answered yet.
        """
        is_news = any(known is sent for known in self._in_flight)
        return self.lose(error) if is_news else []  # else another request failed before

    def lose(self, error: ApiError) -> list[Loss]:
        """Begin anew; return what is lost."""
        unsaid = self.pending.take_all()
        unanswered = [
            (partition, ack)
            for sent in self._in_flight
            for partition, acks in sent.acks.items()
            for ack in acks
        ]
        self._in_flight.clear()
        self._known.clear()
        self._ids.clear()
        self._names.clear()
        self._epoch = _OPENING
        self.life += 1
        self._begun_anew()
        return _told(unanswered + unsaid, error)

    def renews_nothing(self, error: ApiError) -> None:
        """Refuse all renewals of locks."""
        _told(self.pending.take_renewals(), error)

    def _answered(
        self, sent: Sent, codes: Mapping[TopicPartition, tuple[int, str | None]]
    ) -> list[Loss]:
        if not self._forget(sent):
            return []  # counted as lost with the session
        losses: list[Loss] = []
        for partition, acks in sent.acks.items():
            code, message = codes.get(partition, _UNANSWERED)
            if code == ErrorCode.NONE:
                for ack in acks:
                    if ack.told is not None and not ack.told.done():
                        ack.told.set_result(None)
            elif code != ErrorCode.INVALID_RECORD_STATE or not self.pending.refused(
                partition, acks
            ):
                error = api_error(code, message, of=f"{partition.topic}-{partition.partition}")
                losses += _told([(partition, ack) for ack in acks], error)
        return losses

    def _forget(self, sent: Sent) -> bool:
        for index, known in enumerate(self._in_flight):
            if known is sent:
                del self._in_flight[index]
                return True
        return False


_UNANSWERED = (int(ErrorCode.UNKNOWN_SERVER_ERROR), "the broker did not say what came of it")


def _told(acks: Iterable[tuple[TopicPartition, Ack]], error: ApiError) -> list[Loss]:
    """Tell those who wait; return the losses that nobody waits for."""
    losses = []
    for (topic, partition), ack in acks:
        if ack.told is not None and not ack.told.cancelled():  # else nobody waits any more
            if not ack.told.done():
                ack.told.set_exception(error)
        elif ack.type is not AckType.GAP:
            offsets = range(ack.offset, ack.last + 1)
            losses += [Loss(RecordPlace(topic, partition, offset), error) for offset in offsets]
    return losses


def _batches(acks: Acks, topic: str, index: int) -> list[acknowledging.AcknowledgementBatch]:
    """What is said of one partition's records, as both requests take it."""
    return [
        acknowledging.AcknowledgementBatch(
            first_offset=span.first,
            last_offset=span.last,
            acknowledge_types=span.types,
            delay_ms=span.delay_ms,
            result=span.result,
            nack=span.is_nack,
        )
        for span in ranges_of(acks.get(TopicPartition(topic, index), ()))
    ]
