"""An endpoint that keeps failing is left alone, and asked by one caller at a time."""

import pytest

from kaos_memory.engine.circuit_breaker import CircuitBreaker


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def breaker(clock: _Clock) -> CircuitBreaker:
    return CircuitBreaker(failures=3, rest_seconds=5, clock=clock)


def test_failures_that_are_not_in_a_row_stop_nobody(breaker: CircuitBreaker):
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        breaker.answered()
    assert breaker.may_ask()


def test_after_failures_in_a_row_one_caller_asks_after_each_rest(
    breaker: CircuitBreaker, clock: _Clock
):
    for _ in range(3):
        assert breaker.may_ask()
        breaker.failed()
    assert not breaker.may_ask()
    clock.now += 5
    assert [breaker.may_ask() for _ in range(3)] == [True, False, False]
    clock.now += 1
    breaker.failed()
    clock.now += 4.9
    assert not breaker.may_ask()
    clock.now += 0.1
    assert [breaker.may_ask() for _ in range(2)] == [True, False]


def test_an_answer_lets_everybody_ask_again(breaker: CircuitBreaker, clock: _Clock):
    for _ in range(3):
        breaker.failed()
    clock.now += 5
    assert breaker.may_ask()
    breaker.answered()
    assert [breaker.may_ask() for _ in range(3)] == [True, True, True]


def test_who_was_to_ask_and_never_said_how_it_went_blocks_nobody(
    breaker: CircuitBreaker, clock: _Clock
):
    for _ in range(3):
        breaker.failed()
    clock.now += 5
    assert breaker.may_ask()
    clock.now += 5
    assert breaker.may_ask()
