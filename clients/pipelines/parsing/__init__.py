"""Parses the values of records as lines with fields."""

from .lines import MALFORMED, check_numbers, only, parsed, well_formed

__all__ = ["MALFORMED", "check_numbers", "only", "parsed", "well_formed"]
