"""One module per API: its request, its response, and the structs within.

Names, nesting, versions and defaults are those of Kafka's message definitions. Nothing is imported
from here but the table; a module is loaded with the first message of its API.
"""

from qbus.wire.api import API, Api

__all__ = ["API", "Api"]
