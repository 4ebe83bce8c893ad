"""Record batches kept on disk: what a producer could not deliver, for an agent to ship later.

Any number of processes write to a spool at once::

    <spool>/<writer>/lock                             held while the writer lives
    <spool>/<writer>/<topic>-<partition>/<first offset, 20 digits>.log
    <spool>/<writer>/<topic>-<partition>/acknowledged how far it was delivered

The name of a writer begins with its start time, so names sort by time. The ``.log`` files are
segments like a broker's (Kafka's record batch v2, one after another, offsets dense from 0 in each
queue), which Kafka's dump tool reads. Batches keep their producer id, epoch and sequence. The
partition is ``any`` where the producer never learned of one.

A batch is on stable storage when :meth:`SpoolWriter.append` returns. A writer that dies while it
writes leaves a partial batch at the end, which readers skip; readers report any other partial batch
as damage.
"""

from .layout import QueueName
from .reader import Spool, SpoolQueue
from .writer import SpoolWriter

__all__ = ["QueueName", "Spool", "SpoolQueue", "SpoolWriter"]
