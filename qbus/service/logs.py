"""A daemon's own log: lines for people, or JSON objects for collectors."""

import logging
import sys

_HUMAN = "%(asctime)s.%(msecs)03d %(levelname)-7s {}%(name)s: %(message)s"


def configure(form: str, level: str, process: str = "") -> None:
    """Log to standard error from ``level`` up, as ``human`` lines or ``json`` objects.

    ``process`` names this one where several log to the same place.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_formatter(process) if form == "json" else _human_formatter(process))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def _human_formatter(process: str) -> logging.Formatter:
    return logging.Formatter(_HUMAN.format(process and f"[{process}] "), "%Y-%m-%dT%H:%M:%S")


def _json_formatter(process: str) -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter  # noqa: PLC0415 - only where it is asked for

    return JsonFormatter(
        "%(asctime)s %(levelname)s %(name)s %(message)s",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        static_fields={"process": process} if process else None,
    )
