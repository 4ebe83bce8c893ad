"""The sink: writes rows to topics, exactly once for every micro-batch.

Tasks write rows, as record batches, to a staging topic (:mod:`.task`). When all tasks of a
micro-batch are done, the driver appends a manifest of the staged batches to the staging topic
(:mod:`.ledger`), which decides what the micro-batch is, and copies the batches to their target
partitions (:mod:`.publish`). After a crash the next driver finds the manifest and continues.
"""
