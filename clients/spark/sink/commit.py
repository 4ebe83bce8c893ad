"""What the driver does when all tasks of a micro-batch are done: publishes it, once."""

import logging
from collections.abc import Sequence
from uuid import uuid4

from qbus.errors import ApiError
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ...errors import check
from ...net.cluster import Cluster
from ...net.retry import retrying
from ...offsets import list_offsets
from ...types import LATEST, TopicPartition
from .history import History
from .ledger import Ledger
from .manifest import NO_BATCH, Manifest, ProducerIdentity, Sequences, StagedBatch, in_order
from .plan import TargetChanged
from .publish import Publisher, is_gone
from .topics import describe, ensure_staging

_log = logging.getLogger(__name__)


class Committer:
    """Publishes the batches that tasks have staged in a staging topic."""

    def __init__(self, cluster: Cluster, staging: str, patience: float) -> None:
        """``patience``: the most seconds to publish one record batch."""
        self._cluster = cluster
        self._staging = staging
        self._publisher = Publisher(cluster, staging, patience)

    async def commit(self, query: str, batch: int, staged: Sequence[StagedBatch]) -> None:
        """Publish ``staged`` as ``batch`` of ``query``, or the manifest that binds already.

        A batch that was published before is skipped. Raises :class:`~qbus.errors.QbusError`; the
        same call then continues the work, in any process.
        """
        await ensure_staging(self._cluster, self._staging)
        ledger = Ledger(self._cluster, self._staging, query)
        history = await ledger.open()
        if history.batch > batch:
            _log.warning(
                "skipped batch %d of query %s: batch %d is published already",
                batch,
                query,
                history.batch,
            )
        own: set[str] = set()
        while not history.is_published or (history.batch < batch and staged):
            if history.is_published:
                manifest = await self._draft(query, batch, staged, history)
                own.add(manifest.attempt)
                await ledger.append(manifest, history)
            else:
                await self._finish(history, ledger, is_fresh=history.bookmark.attempt in own)

    async def publish(self, query: str, staged: Sequence[StagedBatch]) -> None:
        """Publish ``staged`` for a query that never continues."""
        if staged:
            manifest = await self._manifest(query, 0, staged)
            await self._publisher.publish(manifest, is_fresh=True)

    async def _finish(self, history: History, ledger: Ledger, *, is_fresh: bool) -> None:
        assert history.manifest is not None
        await ledger.bookmark(history)  # before the manifest can age out
        await self._publisher.publish(history.manifest, is_fresh=is_fresh)
        history.published()
        await ledger.bookmark(history)

    async def _draft(
        self, query: str, batch: int, staged: Sequence[StagedBatch], history: History
    ) -> Manifest:
        last = history.manifest
        if last is None:
            return await self._manifest(query, batch, staged, previous=history.batch)
        return await self._manifest(
            query,
            batch,
            staged,
            previous=history.batch,
            producer=last.producer,
            sequences=last.sequences_after(),
        )

    async def _manifest(
        self,
        query: str,
        batch: int,
        staged: Sequence[StagedBatch],
        *,
        previous: int = NO_BATCH,
        producer: ProducerIdentity | None = None,
        sequences: Sequences | None = None,
    ) -> Manifest:
        targets = sorted({each.target for each in staged})
        names = {target.topic for target in targets}
        ids = {name: str((await describe(self._cluster, name)).topic_id) for name in names}
        ends = await self._ends(targets, batch)
        return Manifest(
            query=query,
            batch=batch,
            attempt=uuid4().hex,
            previous=previous,
            producer=producer or await self._new_producer(),
            staged=in_order(staged),
            sequences=sequences or {},
            ends=ends,
            topic_ids=ids,
        )

    async def _ends(
        self, targets: Sequence[TopicPartition], batch: int
    ) -> dict[TopicPartition, int]:
        try:
            found = await list_offsets(self._cluster, dict.fromkeys(targets, LATEST))
        except ApiError as error:
            if not is_gone(error):
                raise
            raise TargetChanged(
                f"{error}: rows of batch {batch} are for a topic or partition that no longer"
                " exists; nothing of the batch is published. Restore the partitions, and start the"
                " query again. Tasks use fewer partitions once kafka.metadata.max.age.ms has"
                " passed, or in a new application"
            ) from error
        return {target: at.offset for target, at in found.items()}

    async def _new_producer(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        async def attempt() -> ProducerIdentity:
            answer: InitProducerIdResponse = await self._cluster.ask_any(
                ApiKey.INIT_PRODUCER_ID, request
            )
            check(answer.error_code)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await retrying(attempt, self._cluster.request_timeout)
