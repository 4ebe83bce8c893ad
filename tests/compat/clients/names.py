"""Names that the clients write in different ways."""

import re


def upper_snake(name: str) -> str:
    """Write ``PreparingRebalance`` as ``PREPARING_REBALANCE``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
