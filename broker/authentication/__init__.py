"""Who clients are: SASL on their connections, passwords for other protocols, tokens.

Whoever was removed is disconnected as soon as this broker hears of it, within moments; a changed
password counts for the next log-in, and leaves sessions as they are, as in Kafka.
"""

from .authentication import BY_CERTIFICATE, Answer, Authentication, Outcome, register_metrics
from .session import Choice
from .starting import start_authentication

__all__ = [
    "BY_CERTIFICATE",
    "Answer",
    "Authentication",
    "Choice",
    "Outcome",
    "register_metrics",
    "start_authentication",
]
