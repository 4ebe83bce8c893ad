"""The choice between the two codecs: the compiled one, or its twin in plain Python.

The environment variable ``QBUS_CODEC`` can demand ``python`` or ``compiled``; then a compiled codec
that was not built, or from sources of another revision, is an ImportError.
"""

import os
from typing import TYPE_CHECKING

REVISION = 6
"""What the compiled codec offers; another number means that it was built from other sources."""

_DEMANDED = os.environ.get("QBUS_CODEC")

if TYPE_CHECKING:
    from qbus.records import pure

    twin = pure
elif _DEMANDED == "python":
    from qbus.records import pure as twin
else:
    try:
        from qbus.records import _codec as twin

        if getattr(twin, "REVISION", 1) != REVISION:
            raise ImportError("the compiled codec is of another revision: build it anew")
    except ImportError:
        if _DEMANDED == "compiled":
            raise
        from qbus.records import pure as twin

CODEC = "python" if twin.__name__.endswith(".pure") else "compiled"
"""The codec in use: "compiled" or "python"."""

AppendLock = twin.AppendLock
AsyncRuns = twin.AsyncRuns
BatchLists = twin.BatchLists
BatchSlot = twin.BatchSlot
HeldItems = twin.HeldItems
OpenBatches = twin.OpenBatches
are_bytes = twin.are_bytes
fit = twin.fit
murmur2 = twin.murmur2
partition_for_keys = twin.partition_for_keys
with_item = twin.with_item
