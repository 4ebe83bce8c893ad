"""Measurements. In this process, too, they run what is compiled: the tests' support, imported
first, would have it run the sources.
"""

import qbus  # noqa: F401 - which decides it here
