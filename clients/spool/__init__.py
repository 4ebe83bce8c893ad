"""Record batches kept on disk for later: what a producer could not deliver, for an agent to ship.

A spool is a directory that any number of processes write to at once::

    <spool>/<writer>/lock                             held while the writer lives
    <spool>/<writer>/<topic>-<partition>/<first offset, 20 digits>.log
    <spool>/<writer>/<topic>-<partition>/acknowledged how far it was delivered

A writer's name begins with the time it began, so that names sort as writers came. The ``.log``
files are segments as a broker's (Kafka's record batch v2, one after another, offsets dense from 0
in each queue), so Kafka's dump tool reads them. Batches keep the producer id, epoch and sequence
they had. The partition is ``any`` where the producer never learned of one.

A batch is stable when :meth:`SpoolWriter.append` returns. A writer that dies in the middle of one
leaves a tail that is not whole, which readers pass over; anything else that is not whole is damage,
which they report.
"""

from .layout import QueueName
from .reader import Spool, SpoolQueue
from .writer import SpoolWriter

__all__ = ["QueueName", "Spool", "SpoolQueue", "SpoolWriter"]
