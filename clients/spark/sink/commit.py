"""What the driver does when all tasks of a micro-batch are done: publishes it, once."""

import asyncio
import logging
from collections.abc import Sequence
from uuid import uuid4

from qbus.errors import ApiError, QbusError
from qbus.wire import ApiKey
from qbus.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from ...errors import TransactionAborted, check
from ...net.cluster import Cluster
from ...net.retry import retrying
from ...offsets import list_offsets
from ...prepared import PreparedTransaction, end_prepared
from ...types import LATEST, TopicPartition
from .history import History
from .ledger import Ledger
from .manifest import (
    NO_BATCH,
    NOBODY,
    Manifest,
    ProducerIdentity,
    Sequences,
    StagedBatch,
    in_order,
)
from .plan import TargetChanged
from .publish import Publisher, is_gone
from .topics import describe, ensure_staging

_log = logging.getLogger(__name__)


class TransactionsLost(QbusError):  # noqa: N818 - what happened
    """A coordinator has aborted a transaction of a micro-batch that was decided."""


class Committer:
    """Publishes the batches that tasks have staged in a staging topic."""

    def __init__(self, cluster: Cluster, staging: str, patience: float) -> None:
        """``patience``: the most seconds to publish one record batch."""
        self._cluster = cluster
        self._staging = staging
        self._patience = patience
        self._publisher = Publisher(cluster, staging, patience)

    async def commit(
        self,
        query: str,
        batch: int,
        staged: Sequence[StagedBatch],
        prepared: Sequence[PreparedTransaction] = (),
    ) -> None:
        """Publish ``staged`` as ``batch`` of ``query``, or the manifest that binds already.

        ``prepared``: transactions that hold the batch's rows in place of ``staged``. A batch that
        was published before is skipped. Raises :class:`~qbus.errors.QbusError`; the
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
        while not history.is_published or (history.batch < batch and (staged or prepared)):
            if history.is_published:
                manifest = await self._draft(query, batch, staged, history, prepared)
                own.add(manifest.attempt)
                await ledger.append(manifest, history)
            else:
                await self._finish(history, ledger, is_fresh=history.bookmark.attempt in own)
        if history.bookmark.attempt not in own:
            await self.abort(prepared)

    async def publish(
        self,
        query: str,
        staged: Sequence[StagedBatch],
        prepared: Sequence[PreparedTransaction] = (),
    ) -> None:
        """Publish ``staged``, or commit ``prepared``, for a query that never continues."""
        await self._end(prepared, committed=True)
        if staged:
            manifest = await self._manifest(query, 0, staged)
            await self._publisher.publish(manifest, is_fresh=True)

    async def abort(self, prepared: Sequence[PreparedTransaction]) -> None:
        """Abort transactions whose rows are not wanted.

        One that cannot be aborted now is aborted by its coordinator.
        """
        try:
            await self._end(prepared, committed=False)
        except QbusError as error:
            _log.warning("transactions stay open until their time-out: %s", error)

    async def _end(self, prepared: Sequence[PreparedTransaction], *, committed: bool) -> None:
        ends = (
            end_prepared(self._cluster, each, committed=committed, timeout=self._patience)
            for each in prepared
        )
        for outcome in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _finish(self, history: History, ledger: Ledger, *, is_fresh: bool) -> None:
        assert history.manifest is not None
        await ledger.bookmark(history)  # before the manifest can age out
        if history.manifest.transactions:
            await self._commit(history.manifest)
        else:
            await self._publisher.publish(history.manifest, is_fresh=is_fresh)
        history.published()
        await ledger.bookmark(history)

    async def _commit(self, manifest: Manifest) -> None:
        try:
            await self._end(manifest.transactions, committed=True)
        except TransactionAborted as error:
            raise TransactionsLost(
                f"batch {manifest.batch} of query {manifest.query} was being committed when the"
                f" query stopped, and since then a transaction of it was aborted: {error}. Its"
                " topics may lack a part of the batch. To continue without it, commit batch"
                f" {manifest.batch} as published in the query's group. A query must be back before"
                " kafka.transaction.timeout.ms has passed"
            ) from error

    async def _draft(
        self,
        query: str,
        batch: int,
        staged: Sequence[StagedBatch],
        history: History,
        prepared: Sequence[PreparedTransaction],
    ) -> Manifest:
        last = history.manifest
        if prepared:
            return Manifest(
                query=query,
                batch=batch,
                attempt=uuid4().hex,
                previous=history.batch,
                producer=NOBODY if last is None else last.producer,
                staged=(),
                sequences={} if last is None else last.sequences_after(),
                ends={},
                topic_ids={},
                transactions=tuple(prepared),
            )
        if last is None or last.producer == NOBODY:
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

        return await retrying(self._cluster, "a producer id", attempt)
