"""Regular expressions as RE2 means them, that cannot hang.

A member of a group subscribes to an expression, and the broker finds the topics that match it as a
whole (KIP-848); tools ask for the transactions whose ids match one. Any client can send any
expression, so a matcher that goes back and tries again is out of the question: it may take
exponential time. This one follows all alternatives at once, as RE2 does: matching takes time
proportional to the length of the text times the size of the expression, whatever the expression.

What is understood: literals, ``.``, classes such as ``[a-z_]``, ``[^-]`` and ``[[:alpha:]]``, the
escapes ``\\d \\D \\w \\W \\s \\S``, groups (also named ones, and ``(?:...)``), ``|``, ``* + ?`` and
``{m,n}`` with their lazy forms, ``^ $ \\A \\z``, ``\\Q...\\E``, and the flags ``(?i)``, ``(?s)``,
``(?m)`` and ``(?U)`` in front. Texts match as a whole, so lazy forms and ``(?U)`` change nothing;
nor does ``(?m)``, as the names that are matched have no line ends. Back references and assertions
about what is beside, which RE2 has not either, are refused; so are ``\\b``, Unicode classes and
what becomes more than :data:`MAX_INSTRUCTIONS` instructions.
"""

import string
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode

MAX_LENGTH: Final = 4096  # characters
MAX_INSTRUCTIONS: Final = 2000
_MAX_REPEAT: Final = 1000  # RE2's limit
_MAX_DEPTH: Final = 100
_MAX_REMEMBERED: Final = 20_000  # steps of one expression
_LAST_CHARACTER: Final = 0x10FFFF
_MAX_FOLDED: Final = 1000  # characters of a range whose other cases are looked for

Characters = tuple[tuple[int, int], ...]
"""A set of characters: ranges of their numbers, both ends included, in order and apart."""


def _set(ranges: Iterable[tuple[int, int]]) -> Characters:
    """Order ranges, and join those that touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def _of(text: str) -> Characters:
    return _set((ord(character), ord(character)) for character in text)


def _all_but(characters: Characters) -> Characters:
    found, begin = [], 0
    for low, high in characters:
        if begin < low:
            found.append((begin, low - 1))
        begin = high + 1
    if begin <= _LAST_CHARACTER:
        found.append((begin, _LAST_CHARACTER))
    return tuple(found)


def _contains(characters: Characters, code: int) -> bool:
    return any(low <= code <= high for low, high in characters)


_CLASSES: Final = {
    "d": _of(string.digits),
    "w": _of(string.ascii_letters + string.digits + "_"),
    "s": _of("\t\n\f\r "),
}
_POSIX: Final = {
    "alnum": _of(string.ascii_letters + string.digits),
    "alpha": _of(string.ascii_letters),
    "ascii": ((0, 127),),
    "blank": _of("\t "),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _of(string.digits),
    "graph": ((33, 126),),
    "lower": _of(string.ascii_lowercase),
    "print": ((32, 126),),
    "punct": _of(string.punctuation),
    "space": _of("\t\n\v\f\r "),
    "upper": _of(string.ascii_uppercase),
    "word": _CLASSES["w"],
    "xdigit": _of(string.hexdigits),
}
_NAME: Final = frozenset(string.ascii_letters + string.digits + "_")
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset("imsU")
_ALL: Final = _all_but(())
_NO_LINE_END: Final = _all_but(_of("\n"))


class InvalidRegularExpression(ApiError):  # noqa: N818 - what it is
    """An expression that cannot be read, or is not supported (INVALID_REGULAR_EXPRESSION)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


class _Kind(Enum):
    """What an instruction does before it goes on to the next ones."""

    CHARACTER = "take a character of a set"
    SPLIT = "go on at several places"
    START = "go on at the start of the text only"
    END = "go on at its end only"
    MATCH = "nothing follows"


class _Instruction(NamedTuple):
    kind: _Kind
    following: tuple[int, ...] = ()
    characters: Characters = ()


Emit = Callable[["_Program", int], int]
"""Writes a part of an expression that goes on at an instruction; returns where the part begins."""


class _Program:
    """Instructions, written from the last to the first."""

    def __init__(self) -> None:
        self.instructions = [_Instruction(_Kind.MATCH)]
        self._parts = 0

    def place(self, part: Emit, following: int) -> int:
        """Write a part. The count bounds repetitions of what is empty, too."""
        self._parts += 1
        if self._parts > 10 * MAX_INSTRUCTIONS:
            raise InvalidRegularExpression("the expression is too large: it repeats too much")
        return part(self, following)

    def add(self, instruction: _Instruction) -> int:
        if len(self.instructions) >= MAX_INSTRUCTIONS:
            raise InvalidRegularExpression(
                f"the expression is too large: it becomes more than {MAX_INSTRUCTIONS} instructions"
            )
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def characters(self, following: int, characters: Characters) -> int:
        return self.add(_Instruction(_Kind.CHARACTER, (following,), characters))

    def split(self, *following: int) -> int:
        return self.add(_Instruction(_Kind.SPLIT, following))

    def loop(self, part: Emit, following: int, *, at_least: int) -> int:
        """A part any number of times, or at least once."""
        again = self.split(following)  # completed when it is known where the part begins
        begin = self.place(part, again)
        self.instructions[again] = _Instruction(_Kind.SPLIT, (begin, following))
        return begin if at_least else again

    def reach(self, begin: int, *, at_start: bool, at_end: bool) -> tuple[int, bool]:
        """Return the characters' instructions, as bits, and whether the match, that come next."""
        found, seen, waiting = 0, {begin}, [begin]
        while waiting:
            here = waiting.pop()
            kind, following, _ = self.instructions[here]
            if kind is _Kind.CHARACTER:
                found |= 1 << here
            elif (kind is _Kind.START and not at_start) or (kind is _Kind.END and not at_end):
                continue
            else:
                fresh = [place for place in following if place not in seen]
                seen.update(fresh)
                waiting += fresh
        return found, 0 in seen


class RegularExpression:
    """A compiled expression.

    Raises:
        InvalidRegularExpression: it cannot be read, is not supported, or is too large.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_LENGTH:
            raise InvalidRegularExpression(f"an expression has at most {MAX_LENGTH} characters")
        self.pattern = pattern
        program = _Program()
        begin = _Parser(pattern).parse()(program, 0)
        _, self._is_empty = program.reach(begin, at_start=True, at_end=True)
        self._start, _ = program.reach(begin, at_start=True, at_end=False)
        self._characters: dict[int, Characters] = {}
        self._follow: dict[int, int] = {}
        self._last = 0
        self._masks: dict[str, int] = {}
        self._steps: dict[int, int] = {}
        for here, (kind, following, characters) in enumerate(program.instructions):
            if kind is _Kind.CHARACTER:
                self._characters[here] = characters
                self._follow[here], _ = program.reach(following[0], at_start=False, at_end=False)
                _, is_last = program.reach(following[0], at_start=False, at_end=True)
                self._last |= is_last << here

    def matches(self, text: str) -> bool:
        """Whether the expression matches a text as a whole."""
        if not text:
            return self._is_empty
        masks, waiting, last = self._masks, self._start, 0
        for character in text:
            mask = masks.get(character)
            if mask is None:
                mask = self._mask(character)
            last = waiting & mask
            if not last:
                return False
            waiting = self._after(last)
        return bool(last & self._last)

    def _mask(self, character: str) -> int:
        """Return which instructions take a character."""
        code, mask = ord(character), 0
        for here, characters in self._characters.items():
            if _contains(characters, code):
                mask |= 1 << here
        if len(self._masks) >= _MAX_REMEMBERED:
            self._masks.clear()
        self._masks[character] = mask
        return mask

    def _after(self, taken: int) -> int:
        """Return what may come after characters were taken by these instructions."""
        known = self._steps.get(taken)
        if known is not None:
            return known
        following, left = 0, taken
        while left:
            lowest = left & -left
            following |= self._follow[lowest.bit_length() - 1]
            left ^= lowest
        if len(self._steps) >= _MAX_REMEMBERED:
            self._steps.clear()
        self._steps[taken] = following
        return following


# What expressions consist of


def _nothing(_: _Program, following: int) -> int:
    return following


def _one_of(characters: Characters) -> Emit:
    return lambda program, following: program.characters(following, characters)


def _assertion(kind: _Kind) -> Emit:
    return lambda program, following: program.add(_Instruction(kind, (following,)))


def _in_turn(parts: list[Emit]) -> Emit:
    def emit(program: _Program, following: int) -> int:
        for part in reversed(parts):
            following = program.place(part, following)
        return following

    return emit


def _any_of(parts: list[Emit]) -> Emit:
    return lambda program, following: program.split(
        *[program.place(part, following) for part in parts]
    )


def _repeated(part: Emit, least: int, most: int | None) -> Emit:
    def emit(program: _Program, following: int) -> int:
        end = following
        if most is None:
            following = program.loop(part, following, at_least=least)
            copies = max(least - 1, 0)
        else:
            for _ in range(most - least):
                following = program.split(program.place(part, following), end)
            copies = least
        for _ in range(copies):
            following = program.place(part, following)
        return following

    return emit


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        self._takes_line_ends = False

    def parse(self) -> Emit:
        part = self._alternatives()
        if self._at < len(self._pattern):
            raise self._error("a group is closed that was not opened")
        return part

    def _alternatives(self) -> Emit:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("groups are nested too deeply")
        flags = self._ignores_case, self._takes_line_ends
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        self._ignores_case, self._takes_line_ends = flags  # until the end of their group
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _any_of(parts)

    def _sequence(self) -> Emit:
        parts: list[Emit] = []
        while self._at < len(self._pattern) and self._peek() not in "|)":
            if self._takes("\\Q"):
                *before, part = [_nothing, *map(self._literal, self._quoted())]
                parts += before
            else:
                part = self._atom()
            while (bounds := self._bounds()) is not None:
                part = _repeated(part, *bounds)
            parts.append(part)
        return _in_turn(parts)

    def _atom(self) -> Emit:
        character = self._next()
        match character:
            case "(":
                part = self._group()
            case "[":
                part = _one_of(self._class())
            case "\\":
                part = self._escape()
            case ".":
                part = _one_of(_ALL if self._takes_line_ends else _NO_LINE_END)
            case "^":
                part = _assertion(_Kind.START)
            case "$":
                part = _assertion(_Kind.END)
            case "*" | "+" | "?":
                raise self._error(f"nothing to repeat before {character}")
            case _:
                part = self._literal(character)
        return part

    def _literal(self, character: str) -> Emit:
        return _one_of(self._cased(_of(character)))

    def _cased(self, characters: Characters) -> Characters:
        """Add the other cases of characters, where case is ignored."""
        if not self._ignores_case:
            return characters
        others = [
            (ord(other), ord(other))
            for low, high in characters
            for code in range(low, min(high, low + _MAX_FOLDED) + 1)
            for other in {chr(code).lower(), chr(code).upper()}
            if len(other) == 1
        ]
        return _set([*characters, *others])

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read how often what came before may be there; None: nothing is said."""
        bounds: tuple[int, int | None]
        if self._takes("*"):
            bounds = (0, None)
        elif self._takes("+"):
            bounds = (1, None)
        elif self._takes("?"):
            bounds = (0, 1)
        else:
            found = self._counts()
            if found is None:
                return None
            bounds = found
        self._takes("?")  # lazy: the same names match
        if self._at < len(self._pattern) and self._peek() in "*+?":
            raise self._error("a repetition of a repetition needs a group")
        return bounds

    def _counts(self) -> tuple[int, int | None] | None:
        """Read ``{m}``, ``{m,}`` or ``{m,n}``; anything else is literal, as in RE2."""
        end = self._pattern.find("}", self._at)
        if self._at >= len(self._pattern) or self._peek() != "{" or end < 0:
            return None
        first, comma, second = self._pattern[self._at + 1 : end].partition(",")
        if not _is_number(first) or not (second == "" or _is_number(second)):
            return None
        least = int(first)
        most = least if not comma else int(second) if second else None
        if least > _MAX_REPEAT or (most is not None and not least <= most <= _MAX_REPEAT):
            raise self._error(f"{{{first}{comma}{second}}} is no repetition of up to {_MAX_REPEAT}")
        self._at = end + 1
        return least, most

    def _group(self) -> Emit:
        flags = self._ignores_case, self._takes_line_ends
        if self._takes("?"):
            if self._takes("P<") or (self._peek_all("<") and not self._is_lookbehind()):
                self._takes("<")
                self._name()
            elif self._flags():
                return _nothing
        part = self._alternatives()
        if not self._takes(")"):
            raise self._error("a group is not closed")
        self._ignores_case, self._takes_line_ends = flags
        return part

    def _is_lookbehind(self) -> bool:
        return self._peek_all("<=") or self._peek_all("<!")

    def _name(self) -> None:
        end = self._pattern.find(">", self._at)
        name = self._pattern[self._at : end] if end > self._at else ""
        if not name or not all(character in _NAME for character in name):
            raise self._error("a group's name is made of letters, digits and underscores")
        self._at = end + 1

    def _flags(self) -> bool:
        """Read the flags of a group; return whether they are all of it: ``(?i)``."""
        is_on = True
        while self._at < len(self._pattern):
            character = self._next()
            if character in _FLAGS:
                if character == "i":
                    self._ignores_case = is_on
                elif character == "s":
                    self._takes_line_ends = is_on
            elif character == "-" and is_on:
                is_on = False
            elif character in ":)":
                return character == ")"
            else:
                break
        raise self._error("RE2 has no such group")

    def _escape(self) -> Emit:
        character = self._next("nothing follows a backslash")
        match character:
            case "A":
                return _assertion(_Kind.START)
            case "z":
                return _assertion(_Kind.END)
        return _one_of(self._escaped(character))

    def _escaped(self, character: str) -> Characters:
        """The characters that an escape stands for, inside and outside of classes."""
        lower = character.lower()
        if lower in _CLASSES:
            return _CLASSES[lower] if character == lower else _all_but(_CLASSES[lower])
        if character in _CONTROLS:
            return _of(_CONTROLS[character])
        if character == "x":
            return self._cased(_of(self._hexadecimal()))
        if character.isalnum() or ord(character) >= 128:
            raise self._error(f"the escape \\{character} is not supported")
        return _of(character)

    def _hexadecimal(self) -> str:
        if self._takes("{"):
            end = self._pattern.find("}", self._at)
            digits, self._at = self._pattern[self._at : max(end, self._at)], end + 1
        else:
            digits = self._pattern[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not 1 <= len(digits) <= 6 or not all(digit in string.hexdigits for digit in digits):
            raise self._error("\\x is followed by two hexadecimal digits, or by more in braces")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise self._error("no character has such a number")
        return chr(code)

    def _quoted(self) -> str:
        end = self._pattern.find("\\E", self._at)
        if end < 0:
            end = len(self._pattern)
        text = self._pattern[self._at : end]
        self._at = min(end + 2, len(self._pattern))
        return text

    def _class(self) -> Characters:
        is_negated = self._takes("^")
        found: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            if self._takes("[:"):
                found += self._posix()
                continue
            low = self._class_item()
            if _is_single(low) and self._peek_all("-") and not self._peek_all("-]"):
                self._at += 1
                found.append(self._range(low, self._class_item()))
            else:
                found += low
        characters = self._cased(_set(found))
        return _all_but(characters) if is_negated else characters

    def _class_item(self) -> Characters:
        character = self._next("a class is not closed")
        if character == "\\":
            return self._escaped(self._next("a class is not closed"))
        return _of(character)

    def _range(self, low: Characters, high: Characters) -> tuple[int, int]:
        if not _is_single(high):
            raise self._error("a range of a class ends with one character")
        first, last = low[0][0], high[0][0]
        if first > last:
            raise self._error(f"the range {chr(first)}-{chr(last)} is empty")
        return first, last

    def _posix(self) -> Characters:
        end = self._pattern.find(":]", self._at)
        name = self._pattern[self._at : max(end, self._at)]
        characters = _POSIX.get(name.removeprefix("^"))
        if end < 0 or characters is None:
            raise self._error("there is no such class")
        self._at = end + 2
        return _all_but(characters) if name.startswith("^") else characters

    # Reading

    def _peek(self) -> str:
        return self._pattern[self._at]

    def _peek_all(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        is_there = self._peek_all(text)
        if is_there:
            self._at += len(text)
        return is_there

    def _next(self, otherwise: str = "the expression ends too early") -> str:
        if self._at >= len(self._pattern):
            raise self._error(otherwise)
        self._at += 1
        return self._pattern[self._at - 1]

    def _error(self, message: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"{message} (at {self._at} of the expression)")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _is_single(characters: Characters) -> bool:
    return len(characters) == 1 and characters[0][0] == characters[0][1]
