"""Mirroring to a target that is no Qbus: records are reproduced, with headers of their origin."""

from .reproduction import Reproduction

__all__ = ["Reproduction"]
