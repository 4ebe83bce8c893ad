"""Record batches as they are: fetched, stored and scanned without being decoded."""

from .fetch import FetchedBatches, FetchLimits, fetch_batches
from .produce import StoredBatch, produce_batches, store_batches
from .reading import find_producer, read_batches
from .sequences import ProducerSequence, as_produced, with_sequence
from .whole import whole_batches

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
