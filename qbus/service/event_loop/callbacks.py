"""Which callback an event loop is at, and where: read from its thread's frames.

Compiled modules have no frames: of those the callback's name tells.
"""

import asyncio
import re
import traceback
from functools import partial
from pathlib import PurePath
from types import FrameType
from typing import Any, Final, NamedTuple

_MOST_FRAMES: Final = 60
_UNNAMED: Final = re.compile(r"Task-\d+")
_LOOPS_OWN: Final = {"_run", "_run_once", "run_forever"}
_HERE: Final = str(PurePath(__file__).parent)
# The frames of asyncio that know the handle: its own, and the loop's when it has just returned.
_HANDLE_IN: Final = {"Handle._run": "self", "BaseEventLoop._run_once": "handle"}


class Place(NamedTuple):
    """Where a loop was seen in the tick ``tick``.

    ``callback`` is the name of what it had called; ``stack`` begins with the outermost frame.
    """

    tick: int
    callback: str
    stack: traceback.StackSummary

    @property
    def line(self) -> str:
        """The innermost line, in short; empty if the callback itself has no frames."""
        innermost = self.stack[-1]
        if innermost.name in _LOOPS_OWN and "asyncio" in innermost.filename:
            return ""
        path = "/".join(PurePath(innermost.filename).parts[-3:])
        return f"{path}:{innermost.lineno} in {innermost.name}"


def place_of(frame: FrameType, tick: int) -> Place:
    """Where a loop's thread is, by its innermost frame."""
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back  # the loop was about to log what it was at
    stack = traceback.StackSummary.extract(
        traceback.walk_stack(frame), limit=_MOST_FRAMES, lookup_lines=False
    )
    stack.reverse()
    return Place(tick, callback_of(frame), stack)


def callback_of(frame: FrameType | None) -> str:
    """The name of the callback that the loop has called."""
    inner: FrameType | None = None
    while frame is not None:
        local = _HANDLE_IN.get(frame.f_code.co_qualname)
        if local is not None:
            handle = frame.f_locals.get(local)
            if isinstance(handle, asyncio.Handle):
                callback = getattr(handle, "_callback", None)
                return _name_of_frame(inner) if callback is None else name_of(callback)
        inner, frame = frame, frame.f_back
    return "the loop itself"


def _name_of_frame(frame: FrameType | None) -> str:
    """The name of a callback that has cancelled itself, which its handle has forgotten."""
    if frame is None:
        return "a cancelled callback"
    module = str(frame.f_globals.get("__name__", ""))
    return f"{module.removeprefix('qbus.')}.{frame.f_code.co_qualname}"


def name_of(callback: Any) -> str:
    """The name of a callback, of the task that it is a step of, or of who gets what came."""
    while isinstance(callback, partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return _name_of_task(owner)
    if isinstance(owner, asyncio.Transport):
        return _qualified(type(owner.get_protocol()))
    return _qualified(callback) or _qualified(type(callback))


def _name_of_task(task: "asyncio.Task[Any]") -> str:
    if not _UNNAMED.fullmatch(task.get_name()):
        return f"task {task.get_name()}"
    return f"task {getattr(task.get_coro(), '__qualname__', 'without a name')}"


def _qualified(named: Any) -> str:
    name, module = (getattr(named, key, None) for key in ("__qualname__", "__module__"))
    if not isinstance(name, str):
        return ""
    return f"{module.removeprefix('qbus.')}.{name}" if isinstance(module, str) else name
