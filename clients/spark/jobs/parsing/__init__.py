"""From the bytes of records to lines with fields."""

from .lines import MALFORMED, parsed, well_formed

__all__ = ["MALFORMED", "parsed", "well_formed"]
