"""Regular expressions: RE2's syntax, names that match as a whole, and nothing that takes long."""

import re
from collections.abc import Iterator
from threading import current_thread

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker import regular_expression
from qbus.broker.regular_expression import (
    MAX_LENGTH,
    MAX_REPETITIONS,
    MAX_UNICODE_CLASSES,
    InvalidRegularExpression,
    RegularExpression,
    find_matching,
)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("orders", "my-orders", False),
        ("^orders$", "orders", True),
        ("^orders.*", "orders-eu", True),
        (".*", "anything.at_all-1", True),
        ("a|b", "b", True),
        ("^a|b$", "b", True),
        ("a|ab", "ab", True),
        ("^(a|b)c$", "bc", True),
        ("a(b|)c", "ac", True),
        ("(?:ab)+", "abab", True),
        ("(?P<x>ab)?", "ab", True),
        ("(?<x>ab)", "ab", True),
        ("[a-c]{2,3}", "abc", True),
        ("[a-c]{2,3}", "a", False),
        ("[a-c]{2}", "abc", False),
        ("[a-c]{2,}?", "abcabc", True),
        ("[^a-c]+", "xyz", True),
        ("[^a-c]+", "xaz", False),
        ("[]a]+", "a", True),
        ("[a-]+", "a-", True),
        (r"[\w.-]+", "a.b-c_d", True),
        ("[[:alpha:]]+", "abc", True),
        ("[[:^digit:]]+", "abc", True),
        ("[[:^digit:]]+", "ab1", False),
        (r"\d+\.\d+", "1.22", True),
        (r"\d+\.\d+", "1x22", False),
        (r"\D\W\S", "a-b", True),
        (r"\w+", "ü", False),  # the classes of Perl are of ASCII
        (r"\Aorders\z", "orders", True),
        (r"\borders\b.*", "orders-eu", True),
        (r"\borders\b.*", "orders_eu", False),
        (r"orders\B.*", "orders_eu", True),
        (r"\pL+", "größe", True),
        (r"\p{Greek}+", "λόγος", True),
        (r"\p{Greek}+", "logos", False),
        (r"[^\pN]+", "a1", False),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Qa.b", "a.b", True),
        (r"\x41\x{42}", "AB", True),
        ("(?i)Orders", "oRDERS", True),
        ("(?i:a)B", "AB", True),
        ("(?i:a)B", "Ab", False),
        ("(?is-m)a|B", "b", True),
        ("(?U)a*", "aa", True),
        ("x{a}", "x", False),
        ("a^b", "ab", False),
        ("a$b", "ab", False),
        ("(a*)*b", "aab", True),
        ("(|a)+", "aa", True),
        ("()", "a", False),
        ("()", "", True),
        ("a+", "", False),
        ("^$", "", True),
        ("[ж-я]+", "щит", True),
        ("[^a-z]+", "ÄÖ!", True),
        ("(?i)größe", "GRÖßE", True),
        (".+", "a\nb", False),
        ("(?s).+", "a\nb", True),
        ("a$", "a\n", False),
        ("tx-.*", "tx-ü€😀", True),
    ],
)
def test_a_name_matches_as_a_whole(pattern: str, name: str, *, expected: bool) -> None:
    assert RegularExpression(pattern).matches(name) is expected


async def test_many_names_are_matched_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    matches = RegularExpression.matches

    def noting(self: RegularExpression, text: str) -> bool:
        threads.add(current_thread().name)
        return matches(self, text)

    monkeypatch.setattr(RegularExpression, "matches", noting)
    assert await find_matching("t.*", ["ta", "b", "t"]) == {"ta", "t"}
    assert threads == {"regular-expressions_0"}


async def test_a_search_that_takes_long_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(regular_expression, "_SLOW_S", -1.0)
    await find_matching("t.*", ["ta", "b"])
    assert "matching 2 names with the regular expression 't.*' took" in caplog.text


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[z-a]",
        "[[:what:]]",
        "*",
        "a**",
        "a{2,1}",
        "a{1001}",
        "\\",
        r"(a)\1",
        r"\p{Klingon}",
        r"a\Z",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?P<>a)",
        "(?P=x)",
        r"\x4",
        r"\x{110000}",
        "\ud800",
        "(" * 4096,
    ],
)
def test_an_expression_that_re2_does_not_read_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=r"regular expression|counts") as refused:
        RegularExpression(pattern)
    assert "b'" not in str(refused.value)


def test_the_reason_names_the_part_that_is_wrong() -> None:
    with pytest.raises(InvalidRegularExpression, match=r"missing \]: \[a"):
        RegularExpression("orders-[a")


# Bounds. RE2 holds the interpreter while it compiles: these take it seconds, or hundreds of MB.


@pytest.mark.parametrize(
    "pattern",
    [
        "a" * (MAX_LENGTH + 1),
        "((a{100}){100}){100}",
        "((((((){1000}){1000}){1000}){1000}){1000})",
        "(" + "()" * 1000 + "){1000}",
        "((a?){1000}){1000}",
        "(?:a){0,300}" * 2,
        "a{0,1000}|" * 30,
        "(?:" + "|" * 3900 + "a){4}" + "b{497}",
        "(?:a{0,31}){0,31}" * 20,
        f"a{{{MAX_REPETITIONS}}}b{{1}}",
        "a{" + "0" * 4000 + "501}",
        "a{" + "9" * 4000 + "}",
        r"\pL" * (MAX_UNICODE_CLASSES + 1),
        "(?i)[" + r"\PL" * 1300 + "]",
        r"(?:\pL){20}",
        "(?:[" + "".join(chr(0x4E00 + 2 * n) for n in range(2000)) + "]){999}",
        "(.*a)" * 680,
    ],
)
def test_an_expression_that_takes_long_to_compile_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=r"more than|too large|repetition size"):
        RegularExpression(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a" * 4000,
        "|".join(f"orders-{n:05}" for n in range(300)),
        "(?i)" + "|".join(f"orders-{n:05}" for n in range(300)),
        "(?:a?){490}",
        f".{{1,249}}[a-z]{{{MAX_REPETITIONS - 249}}}",
        r"[\pL\pN][\pL\pN._-]*",
        r"\p{Greek}|\p{Han}|\p{Cyrillic}|\p{Latin}",
    ],
)
def test_an_expression_within_the_bounds_compiles(pattern: str) -> None:
    RegularExpression(pattern)


def test_what_is_compiled_is_small() -> None:
    """The time to compile and to match follows from the size of the program."""
    largest = 0
    for pattern in _hostile():
        try:
            compiled = RegularExpression(pattern)
        except InvalidRegularExpression:
            continue
        largest = max(largest, compiled.size)
    assert 1000 < largest < 10_000


def _hostile() -> Iterator[str]:
    parts = ["a?", "a*", "(a|)", r"\w?", ".?", "(?:a?b?)*", r"(?:\PL|a)?", "a{0,200}", "(?i)ẞ?"]
    for part in parts:
        for copies in (1, 3, 30, 300, 1000):
            yield part * copies
            yield f"(?:{part * copies})*"
            yield f"(?:{part}){{0,{copies}}}"
            yield "|".join([part] * copies)


def test_compiled_expressions_are_not_kept_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    RegularExpression("once")
    assert re2._Regexp._make.cache_info().currsize == 0


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){100}a{100}b", "(a|b)*a.{50}b"],
)
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    """Each of these does where a matcher goes back and tries again: the test would not end."""
    compiled = RegularExpression(pattern)
    assert not any(compiled.matches("a" * 240 + str(n)) for n in range(100))


def _patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", "-", r"\.", ".", "[ab]", "[^b]", r"\d", "^", "$", "1"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
        ),
        max_leaves=8,
    )


@given(_patterns(), st.text("ab-.1", min_size=1, max_size=8))
def test_it_matches_what_pythons_expressions_match(pattern: str, name: str) -> None:
    assert RegularExpression(pattern).matches(name) is (re.fullmatch(pattern, name) is not None)
