"""Compaction: of the records of a key only the newest stays (``cleanup.policy=compact``).

A thread of the broker takes the log with the largest share of what is not compacted yet, and goes
over it twice. First it learns the newest offset of each key in the *dirty* part, which begins where
the last compaction ended (:mod:`qbus.records.compact`). Then it writes all segments up to there
anew, with what is left of them (:mod:`.cleaning`), and lets them take the place of the old ones
(:mod:`qbus.broker.log.replacement`). Each replica compacts its own log. The rules are Kafka's.
"""
