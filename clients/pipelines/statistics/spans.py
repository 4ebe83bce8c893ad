"""Lengths of time as Spark writes them."""


def interval(milliseconds: int) -> str:
    """A length in milliseconds as the text of an interval."""
    return f"{milliseconds} milliseconds"
