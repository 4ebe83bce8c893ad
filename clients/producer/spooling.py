"""Spooling what could not be delivered."""

import asyncio
import logging

from qbus.errors import ConfigError, QbusError

from ..errors import Spooled
from ..spool import SpoolWriter
from .batch import Batch
from .options import ProducerOptions, Spool

log = logging.getLogger(__name__)


class Spooler:
    """Writes batches to a spool in a thread, one at a time."""

    def __init__(self, directory: Spool, options: ProducerOptions) -> None:
        """Raises :class:`~qbus.errors.ConfigError` if nothing can be kept in ``directory``."""
        self._directory = str(directory)
        self._writer = SpoolWriter(directory)
        try:
            self._writer.check()
        except OSError as error:
            raise ConfigError(f"spool_dir={self._directory!r}: {error.strerror}") from error
        self._options = options
        self._turn = asyncio.Lock()

    async def keep(self, batch: Batch, error: QbusError) -> Exception:
        """Return the outcome of a batch: Spooled, or ``error`` if the spool failed too."""
        partition = None if batch.is_movable and not batch.was_sent else batch.partition.partition
        async with self._turn:
            try:
                encoded = batch.encoded
                if encoded is None:
                    encoded = await asyncio.to_thread(self._encode, batch)
                await asyncio.to_thread(
                    self._writer.append, batch.partition.topic, partition, encoded
                )
            except Exception as failure:
                log.exception(
                    "cannot spool %d records of %s: they are lost",
                    batch.count,
                    batch.partition.topic,
                )
                error.__cause__ = failure
                return error
        return Spooled(self._directory)

    async def close(self) -> None:
        """Release the directory."""
        async with self._turn:
            await asyncio.to_thread(self._writer.close)

    def _encode(self, batch: Batch) -> bytearray:
        return batch.encode(self._options.compression, self._options.compression_level)
