"""Access rules: the index decides as the plain reading of Kafka's semantics does, and says why."""

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.security.acls import (
    EVERYONE,
    WILDCARD,
    AclIndex,
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Reason,
    Resource,
    ResourceType,
    Rule,
    canonical_host,
    index_of,
    known,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"


def allow(
    name: str, operation: Operation = READ, who: str = ALICE, host: str = WILDCARD, **more: Any
) -> Rule:
    pattern = Pattern(more.get("type", TOPIC), name, more.get("pattern", PatternType.LITERAL))
    return Rule(pattern, Entry(who, host, operation, more.get("permission", Permission.ALLOW)))


def deny(name: str, operation: Operation = READ, **more: Any) -> Rule:
    return allow(name, operation, permission=Permission.DENY, **more)


def prefixed(name: str, operation: Operation = READ, **more: Any) -> Rule:
    return allow(name, operation, pattern=PatternType.PREFIXED, **more)


def allows(
    rules: Iterable[Rule], operation: Operation = READ, name: str = "orders", who: str = ALICE
) -> bool:
    return index_of(rules).allows(who, HOST, operation, Resource(TOPIC, name))


# One rule


def test_without_rules_nothing_is_allowed() -> None:
    assert not allows([])


def test_without_rules_everything_may_be_allowed_by_configuration() -> None:
    index = index_of([allow("other")], allows_without_rules=True)
    assert index.allows(BOB, HOST, READ, Resource(TOPIC, "orders"))
    assert index.allows(BOB, HOST, READ, Resource(GROUP, "readers"))
    assert not index.allows(BOB, HOST, READ, Resource(TOPIC, "other"))  # a rule concerns it


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (allow("orders"), True),
        (allow("order"), False),
        (allow("Orders"), False),
        (allow(WILDCARD), True),
        (prefixed("ord"), True),
        (prefixed("orders"), True),
        (prefixed("orders-"), False),
        (prefixed(WILDCARD), False),  # a prefix like any other
        (allow("orders", type=GROUP), False),
        (allow("orders", who=BOB), False),
        (allow("orders", who="User:Alice"), False),
        (allow("orders", who="Group:alice"), False),
        (allow("orders", who=EVERYONE), True),
        (allow("orders", host=HOST), True),
        (allow("orders", host="10.0.0.2"), False),
        (allow("orders", host="::ffff:10.0.0.1"), True),
        (allow("orders", WRITE), False),
        (allow("orders", Operation.ALL), True),
    ],
    ids=str,
)
def test_a_rule_allows_what_it_names(rule: Rule, expected: bool) -> None:
    assert allows([rule]) is expected


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE])
def test_what_lets_use_a_topic_lets_describe_it(operation: Operation) -> None:
    assert allows([allow("orders", operation)], DESCRIBE)


def test_altering_a_configuration_lets_describe_it() -> None:
    rule = allow("orders", Operation.ALTER_CONFIGS)
    assert allows([rule], Operation.DESCRIBE_CONFIGS)
    assert not allows([rule], DESCRIBE)


def test_what_denies_denies_no_more_than_it_names() -> None:
    assert allows([deny("orders", READ), allow("orders", WRITE)], DESCRIBE)
    assert not allows([deny("orders", DESCRIBE), allow("orders", WRITE)], DESCRIBE)
    assert not allows([deny("orders", Operation.ALL), allow("orders", WRITE)], DESCRIBE)


@pytest.mark.parametrize(
    "denial",
    [
        deny("orders"),
        deny(WILDCARD),
        deny("o", pattern=PatternType.PREFIXED),
        deny("orders", who=EVERYONE),
        deny("orders", host=HOST),
        deny("orders", Operation.ALL),
    ],
    ids=str,
)
def test_a_denial_wins_wherever_it_stands(denial: Rule) -> None:
    for rule in (allow("orders"), allow(WILDCARD), prefixed("orders"), allow("orders", who=BOB)):
        assert not allows([rule, denial])
    assert allows([allow("other"), denial], name="other") is not denial.pattern.concerns(
        Resource(TOPIC, "other")
    )


def test_a_super_user_may_do_what_is_denied() -> None:
    index = index_of([deny(WILDCARD, Operation.ALL, who=EVERYONE)], super_users=["User:root"])
    assert index.allows("User:root", HOST, READ, Resource(TOPIC, "orders"))
    assert not index.allows("User:Root", HOST, READ, Resource(TOPIC, "orders"))


# Any rules: the index and the plain reading


def plainly(
    rules: Iterable[Rule], who: str, host: str, operation: Operation, resource: Resource
) -> bool:
    """The semantics, read rule by rule."""

    def concerns(rule: Rule) -> bool:
        pattern = rule.pattern
        if pattern.type is not resource.type:
            return False
        if pattern.pattern is PatternType.PREFIXED:
            return resource.name.startswith(pattern.name)
        return pattern.name in {WILDCARD, resource.name}

    def is_about_it(entry: Entry) -> bool:
        operations = {operation, Operation.ALL}
        if entry.permission is Permission.ALLOW and operation is DESCRIBE:
            operations |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
        if entry.permission is Permission.ALLOW and operation is Operation.DESCRIBE_CONFIGS:
            operations.add(Operation.ALTER_CONFIGS)
        return (
            entry.principal in {who, EVERYONE}
            and entry.host in {host, WILDCARD}
            and entry.operation in operations
        )

    entries = [rule.entry for rule in rules if concerns(rule)]
    found = {entry.permission for entry in entries if is_about_it(entry)}
    return found == {Permission.ALLOW}


NAMES: Final = ("a", "ab", "abc", "b", "bc", WILDCARD)
HOSTS: Final = ("1.1.1.1", "2.2.2.2")
ACTED: Final = tuple(one for one in Operation if one > Operation.ALL)

PATTERNS = st.builds(
    Pattern,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
ENTRIES = st.builds(
    Entry,
    st.sampled_from([ALICE, BOB, EVERYONE]),
    st.sampled_from([*HOSTS, WILDCARD]),
    st.sampled_from([Operation.ALL, *ACTED]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
RULES = st.lists(st.builds(Rule, PATTERNS, ENTRIES), max_size=12)
QUESTIONS = st.tuples(
    st.sampled_from([ALICE, BOB]),
    st.sampled_from(HOSTS),
    st.sampled_from(ACTED),
    st.builds(Resource, st.sampled_from([TOPIC, GROUP]), st.sampled_from(["a", "abcd", "b", "c"])),
)


@settings(max_examples=300)
@given(RULES, st.lists(QUESTIONS, min_size=1, max_size=8))
def test_the_index_decides_as_the_plain_reading_does(
    rules: list[Rule], questions: list[tuple[str, str, Operation, Resource]]
) -> None:
    index = index_of(rules)
    assert len(index) == len(set(rules))
    for question in questions:
        expected = plainly(rules, *question)
        decision = index.explain(*question)
        assert (index.allows(*question), decision.allowed) == (expected, expected)
        if decision.rule is not None:  # the one that decided would decide alone
            assert decision.rule in rules
            assert plainly([decision.rule], *question) is expected


@settings(max_examples=100)
@given(st.lists(st.tuples(PATTERNS, st.lists(ENTRIES, max_size=3)), max_size=20), QUESTIONS)
def test_changes_leave_what_a_new_index_has(
    changes: list[tuple[Pattern, list[Entry]]],
    question: tuple[str, str, Operation, Resource],
) -> None:
    index, stated = AclIndex(), dict[Pattern, list[Entry]]()
    for pattern, entries in changes:
        version = index.version
        index.put(pattern, entries)
        stated[pattern] = entries
        assert index.version > version
    rules = [Rule(pattern, one) for pattern, entries in stated.items() for one in entries]
    assert index.allows(*question) is plainly(rules, *question)
    assert set(index.find(Filter())) == set(rules)
    who, host, operation, resource = question
    fresh = index_of(rules).allows_any(who, host, operation, resource.type)
    assert index.allows_any(who, host, operation, resource.type) is fresh
    for pattern in stated:
        index.put(pattern, ())
    assert (len(index), index.patterns(), list(index.find(Filter()))) == (0, [], [])


# Any resource of a type (KIP-679)


def any_plainly(rules: list[Rule], who: str, host: str, operation: Operation) -> bool:
    """Whether there is a name, short of what is known, that is allowed."""
    names = {rule.pattern.name for rule in rules if rule.pattern.name != WILDCARD}
    tried = {"hardcode", *names, *(f"{name}~" for name in names)}
    return any(plainly(rules, who, host, operation, Resource(TOPIC, name)) for name in tried)


@settings(max_examples=300)
@given(RULES, st.sampled_from([ALICE, BOB]), st.sampled_from(HOSTS))
def test_what_is_allowed_for_any_is_so_for_some_name(
    rules: list[Rule], who: str, host: str
) -> None:
    found = index_of(rules).allows_any(who, host, WRITE, TOPIC)
    exists = any_plainly(rules, who, host, WRITE)
    # A prefix may be allowed although all longer names known here are denied, never the reverse.
    assert found or not exists


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([allow("a", WRITE)], True),
        ([allow("a", READ)], False),
        ([allow(WILDCARD, WRITE)], True),
        ([prefixed("a", WRITE)], True),
        ([allow("a", WRITE), deny("a", WRITE)], False),
        ([allow("a", WRITE), deny(WILDCARD, WRITE)], False),
        ([allow("ab", WRITE), deny("a", WRITE, pattern=PatternType.PREFIXED)], False),
        ([prefixed("ab", WRITE), deny("a", WRITE, pattern=PatternType.PREFIXED)], False),
        ([prefixed("a", WRITE), deny("ab", WRITE, pattern=PatternType.PREFIXED)], True),
        ([prefixed("a", WRITE), deny("a", WRITE)], True),
        ([allow("a", WRITE, host="9.9.9.9")], False),
        ([allow("a", WRITE, who=BOB)], False),
        ([allow("a", WRITE, who=EVERYONE)], True),
    ],
)
def test_a_name_that_is_not_denied_suffices(rules: list[Rule], expected: bool) -> None:
    assert index_of(rules).allows_any(ALICE, HOST, WRITE, TOPIC) is expected


# What cannot be read


def test_what_cannot_be_read_denies() -> None:
    index = index_of([allow(WILDCARD, Operation.ALL)], super_users=["User:root"])
    index.put_unreadable(Pattern(TOPIC, "orders", PatternType.PREFIXED))
    for name, expected in (("orders", False), ("orders-2", False), ("order", True)):
        resource = Resource(TOPIC, name)
        assert index.allows(ALICE, HOST, READ, resource) is expected
        assert index.explain(ALICE, HOST, READ, resource).allowed is expected
    reason = index.explain(ALICE, HOST, READ, Resource(TOPIC, "orders")).reason
    assert reason is Reason.UNREADABLE
    assert index.allows("User:root", HOST, READ, Resource(TOPIC, "orders"))
    assert len(index) == 1


def test_rules_that_can_be_read_again_count_again() -> None:
    index = AclIndex()
    pattern = Pattern(TOPIC, "orders")
    index.put_unreadable(pattern)
    index.put(pattern, [allow("orders").entry])
    assert index.allows(ALICE, HOST, READ, Resource(TOPIC, "orders"))


def test_all_of_a_type_that_cannot_be_read_leaves_no_name() -> None:
    index = index_of([allow("a", WRITE)])
    index.put_unreadable(Pattern(TOPIC, WILDCARD))
    assert not index.allows_any(ALICE, HOST, WRITE, TOPIC)


# Why


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], "no rule concerns the resource"),
        ([allow("orders", WRITE)], "rules concern the resource, but none allows it"),
        (
            [allow("orders")],
            "literal topic 'orders' allows User:alice READ from every address",
        ),
        (
            [allow(WILDCARD), deny("ord", who=EVERYONE, pattern=PatternType.PREFIXED, host=HOST)],
            "prefixed topic 'ord' denies User:* READ from 10.0.0.1",
        ),
    ],
)
def test_a_decision_is_told_in_a_sentence(rules: list[Rule], expected: str) -> None:
    assert str(index_of(rules).explain(ALICE, HOST, READ, Resource(TOPIC, "orders"))) == expected


def test_the_rule_is_told_as_it_was_written() -> None:
    rule = allow("orders", host="::FFFF:10.0.0.1")
    decision = index_of([rule]).explain(ALICE, HOST, READ, Resource(TOPIC, "orders"))
    assert decision.rule == rule


# Hosts


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1", "fe80::1"),
        ("*", "*"),
        ("some.host", "some.host"),
        ("", ""),
    ],
)
def test_addresses_compare_whatever_form_they_have(written: str, canonical: str) -> None:
    assert canonical_host(written) == canonical


# Filters


def matching(rules: list[Rule], wanted: Filter) -> Iterator[Rule]:
    return (rule for rule in dict.fromkeys(rules) if wanted.matches(rule))


FILTERS = st.builds(
    Filter,
    st.sampled_from([ResourceType.ANY, TOPIC, GROUP, ResourceType.UNKNOWN]),
    st.sampled_from([None, *NAMES, "abcd"]),
    st.sampled_from(PatternType),
    st.sampled_from([None, ALICE, EVERYONE]),
    st.sampled_from([None, *HOSTS, WILDCARD]),
    st.sampled_from([Operation.ANY, Operation.ALL, READ, DESCRIBE]),
    st.sampled_from(Permission),
)


@settings(max_examples=300)
@given(RULES, FILTERS)
def test_the_index_finds_what_a_filter_matches(rules: list[Rule], wanted: Filter) -> None:
    assert sorted(index_of(rules).find(wanted)) == sorted(matching(rules, wanted))


def test_match_finds_what_concerns_a_resource() -> None:
    rules = [allow("ab"), allow(WILDCARD), prefixed("a"), prefixed("abc"), allow("a")]
    found = set(index_of(rules).find(Filter(TOPIC, "ab", PatternType.MATCH)))
    assert found == {allow("ab"), allow(WILDCARD), prefixed("a")}


def test_a_number_that_nobody_knows_is_unknown() -> None:
    assert known(Operation, 99) is Operation.UNKNOWN
    assert known(Operation, -1) is Operation.UNKNOWN
    assert known(ResourceType, 2) is TOPIC


# Many


class Counting(dict[Any, Any]):
    """Counts how often it is looked into."""

    looks = 0

    def get(self, key: Any, default: Any = None) -> Any:
        Counting.looks += 1
        return super().get(key, default)


def many(count: int) -> AclIndex:
    """Rules of every form, for many principals and names."""
    chance = random.Random(7)
    index = AclIndex()
    for number in range(count // 4):
        who = f"User:u{number}"
        for pattern in (
            Pattern(TOPIC, f"topic-{number}"),
            Pattern(TOPIC, f"{number}." + "x" * chance.randrange(20), PatternType.PREFIXED),
        ):
            index.put(
                pattern,
                [
                    Entry(who, WILDCARD, READ, Permission.ALLOW),
                    Entry(EVERYONE, f"10.{number % 250}.0.9", WRITE, Permission.DENY),
                ],
            )
    return index


def test_a_decision_takes_as_many_steps_with_a_hundred_thousand_rules_as_with_a_hundred() -> None:
    steps = {}
    for count in (400, 100_000):
        index = many(count)
        assert len(index) == count
        of_type = index._types[TOPIC]
        of_type.literal, of_type.prefixed = Counting(of_type.literal), Counting(of_type.prefixed)
        before = Counting.looks
        for name in ("topic-7", "7.xxxxxxxx", "nothing"):
            index.allows("User:u7", HOST, READ, Resource(TOPIC, name))
            index.explain("User:u7", HOST, READ, Resource(TOPIC, name))
            index.allows_any("User:u7", HOST, READ, TOPIC)
        steps[count] = Counting.looks - before
    assert steps[100_000] <= steps[400] + 9 * 30  # some more lengths of prefixes
    assert steps[100_000] < 500


def test_one_pattern_with_very_many_rules_decides_as_fast() -> None:
    entries = [Entry(f"User:u{n}", WILDCARD, READ, Permission.ALLOW) for n in range(50_000)]
    index = AclIndex()
    index.put(Pattern(TOPIC, "orders"), entries)
    (rules,) = index._types[TOPIC].concerning("orders")
    rules.allowed, rules.denied = Counting(rules.allowed), Counting(rules.denied)
    before = Counting.looks
    assert index.allows("User:u49999", HOST, READ, Resource(TOPIC, "orders"))
    assert not index.allows("User:nobody", HOST, READ, Resource(TOPIC, "orders"))
    assert Counting.looks - before <= 16
