"""No request, however many things it changes, makes a line of the log that nobody can read."""

from qbus.broker.kafka.log_lines import in_lines


def test_a_line_tells_of_a_hundred_things() -> None:
    assert list(in_lines(range(250))) == [range(100), range(100, 200), range(200, 250)]
    assert list(in_lines(["one"])) == [["one"]]
    assert list(in_lines([])) == []
