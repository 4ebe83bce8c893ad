"""Says which extra measurements need."""

_OWN = ("perf", "qbus", "tests")


def missing(error: ModuleNotFoundError) -> str | None:
    """Return what to install for a missing package; None if a module of Qbus is missing."""
    package = (error.name or "").partition(".")[0]
    if not package or package in _OWN:
        return None
    return (
        f"perf: the package {package} is not installed; measurements need the extra 'test':"
        " pip install '.[test]', or run 'make perf'"
    )
