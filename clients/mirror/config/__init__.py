"""What a mirror is told: from which IDCs into which one, which topics, and how.

:class:`MirrorConfig` is read from TOML (:func:`parse`), checked, and never changes; whoever wants
another one replaces it whole. :func:`links` gives what each pair of IDCs needs to know.
"""

from qbus.service.toml import to_document, to_toml

from .config import Fallback, Groups, MirrorConfig, Source, Target, Topics, Transfer
from .link import LinkConfig, links
from .reading import load, parse, read
from .selection import Selection

__all__ = [
    "Fallback",
    "Groups",
    "LinkConfig",
    "MirrorConfig",
    "Selection",
    "Source",
    "Target",
    "Topics",
    "Transfer",
    "links",
    "load",
    "parse",
    "read",
    "to_document",
    "to_toml",
]
