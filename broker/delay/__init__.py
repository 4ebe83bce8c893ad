"""Delayed records: held back in their partition's own log until they are due.

A record whose headers ask for a later time (:mod:`qbus.delay`) is appended as a hidden batch
(:mod:`qbus.records.control`); when it is due, the partition's leader appends it once more for all
to see, after a control record that accounts for it. So replication, recovery and truncation carry
delayed records as they carry all others, and there is nothing beside the log to reconcile.

- :mod:`.schedule`: when what is due, in memory.
- :mod:`.fold`: the schedule as a function of the log's hidden batches.
- :mod:`.intake`: what producers send, split into what is visible now and what is held back.
- :mod:`.held`: reading records that are held back.
- :mod:`.reading_ahead`: what is due soon is read before. :mod:`.delivery`: what is due becomes
  visible. :mod:`.dead_lettering`: what is due too late goes to another topic. :mod:`.carrying`:
  what retention would take, and is not due yet, is appended again.
- :mod:`.incoming`, :mod:`.delayed_partition` and :mod:`.service`: all of it, with its timers, for
  the partitions that this broker leads.
"""

from .fold import DelayFold
from .service import DelayService

__all__ = ["DelayFold", "DelayService"]
