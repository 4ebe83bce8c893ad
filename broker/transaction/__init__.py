"""Transactions (KIP-98): who writes under a transactional id, and how each transaction ends."""

from .appending import MarkerAppends
from .coordinator import CoordinatorPeers, Question, TransactionCoordinator
from .machine import EPOCH_PER_TRANSACTION, Participants
from .markers import Marker, Told
from .metrics import register_metrics
from .state import Place, State, Transaction

__all__ = [
    "EPOCH_PER_TRANSACTION",
    "CoordinatorPeers",
    "Marker",
    "MarkerAppends",
    "Participants",
    "Place",
    "Question",
    "State",
    "Told",
    "Transaction",
    "TransactionCoordinator",
    "register_metrics",
]
