"""``python -m perf [CLAIM ...]``: measure the claims about speed; see :mod:`perf.command`."""

import sys

from perf.requirements import missing


def main() -> None:
    """Run the command, or say which packages it lacks."""
    try:
        from perf.command import main as command

        command(prog_name="python -m perf")
    except ModuleNotFoundError as error:
        reason = missing(error)
        if reason is None:
            raise
        sys.exit(reason)


if __name__ == "__main__":
    main()
