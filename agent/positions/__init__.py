"""How far each file was delivered: durable, and cheap for ten thousands of files."""

from .journal import Journal
from .position import Position
from .positions import Positions
from .writer import PositionsWriter

__all__ = ["Journal", "Position", "Positions", "PositionsWriter"]
