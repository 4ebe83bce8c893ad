"""Tests that wait for what the consumer does not have yet: an option or a method, by its name."""

import inspect

import pytest

from qbus.aio import Consumer


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip, and say so, while the consumer lacks one of these options or methods."""
    options = inspect.signature(Consumer).parameters
    missing = [name for name in names if name not in options and not hasattr(Consumer, name)]
    return pytest.mark.skipif(bool(missing), reason=f"the consumer has no {', '.join(missing)} yet")
