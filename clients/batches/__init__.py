"""Raw record batches: fetched, produced and scanned without decoding."""

from .fetch import FetchedBatches, FetchLimits, fetch_batches, whole_batches
from .produce import (
    ProducerSequence,
    StoredBatch,
    as_produced,
    produce_batches,
    store_batches,
    with_sequence,
)
from .reading import find_producer, read_batches

__all__ = [
    "FetchLimits",
    "FetchedBatches",
    "ProducerSequence",
    "StoredBatch",
    "as_produced",
    "fetch_batches",
    "find_producer",
    "produce_batches",
    "read_batches",
    "store_batches",
    "whole_batches",
    "with_sequence",
]
