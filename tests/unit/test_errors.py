"""Errors and the codes that carry them."""

from qbus.errors import MAX_MESSAGE, ApiError, ErrorCode


def test_an_error_without_message_is_named_by_its_code() -> None:
    error = ApiError(ErrorCode.INVALID_CONFIG)
    assert str(error) == "INVALID_CONFIG"
    assert error.message is None


def test_a_message_that_quotes_a_client_is_bounded() -> None:
    error = ApiError(ErrorCode.INVALID_CONFIG, "unknown: " + "x" * 40_000)
    assert error.message is not None
    assert len(error.message) == MAX_MESSAGE
    assert error.message.endswith("...")


def test_a_client_may_retry_what_may_pass() -> None:
    assert ApiError(ErrorCode.KAFKA_STORAGE_ERROR).retriable
    assert not ApiError(ErrorCode.INVALID_RECORD).retriable
