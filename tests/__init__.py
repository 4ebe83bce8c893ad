"""All tests. Their own process runs the sources of Qbus, which some of them replace parts of.

The processes that they start run what is compiled. With ``QBUS_TESTS_COMPILED=1`` their own does,
too, without the tests marked ``sources``.
"""

import os

_stated = os.environ.get("QBUS_COMPILED")
if not os.environ.get("QBUS_TESTS_COMPILED"):
    os.environ["QBUS_COMPILED"] = "0"

import qbus  # noqa: E402, F401 - which decides it here

if _stated is None:
    os.environ.pop("QBUS_COMPILED", None)
