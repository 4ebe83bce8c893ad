"""Where the target is no Qbus: records produced anew, with headers that tell their origin."""

from .reproduction import Reproduction

__all__ = ["Reproduction"]
