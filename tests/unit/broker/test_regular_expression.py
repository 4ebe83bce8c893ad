"""Regular expressions: what RE2 matches, and nothing that takes long."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.broker.regular_expression import (
    MAX_INSTRUCTIONS,
    MAX_LENGTH,
    InvalidRegularExpression,
    RegularExpression,
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
        (r"\Aorders\z", "orders", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Qa.b", "a.b", True),
        (r"\x41\x{42}", "AB", True),
        ("(?i)Orders", "oRDERS", True),
        ("(?i:a)B", "AB", True),
        ("(?i:a)B", "Ab", False),
        ("(?is-m)a|B", "b", True),
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
        ("tx-.*", "tx-ü€😀", True),
    ],
)
def test_a_name_matches_as_a_whole(pattern: str, name: str, *, expected: bool) -> None:
    assert RegularExpression(pattern).matches(name) is expected


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
        r"\p{L}",
        r"\bfoo",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?P<>a)",
        "(?P=x)",
        r"\x4",
        r"\x{110000}",
        "(" * 5000,
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_what_re2_has_not_or_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        RegularExpression(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{100}){100}){100}",
        "((((((){1000}){1000}){1000}){1000}){1000})",
        "(" + "()" * 1000 + "){1000}",
        "((a?){1000}){1000}",
        "a" * 1500 + "a{1000}",
    ],
)
def test_what_grows_without_bounds_is_refused_at_once(pattern: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRegularExpression, match="too large"):
        RegularExpression(pattern)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){100}a{100}b"]
)
def test_no_pattern_hangs(pattern: str) -> None:
    """Each of these takes exponential time where a matcher goes back and tries again."""
    compiled = RegularExpression(pattern)
    began = time.process_time()
    assert not any(compiled.matches("a" * 240 + str(n)) for n in range(100))
    assert time.process_time() - began < 2.0


def test_a_pattern_with_very_many_states_takes_time_in_proportion_to_its_size() -> None:
    compiled = RegularExpression("(a|b)*a" + "(a|b)" * (MAX_INSTRUCTIONS // 4))
    names = [format(n * 7919, "b").translate({48: "a", 49: "b"}) for n in range(2000)]
    began = time.process_time()
    assert not any(map(compiled.matches, names))
    assert time.process_time() - began < 5.0


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
