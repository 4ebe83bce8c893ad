"""From the bytes of records to lines with fields."""

from .lines import MALFORMED, only, parsed, well_formed
from .lines import check_numbers

__all__ = ["MALFORMED", "check_numbers", "only", "parsed", "well_formed"]
