"""The timer: turns, warm-up, budget, medians and ratios, with a clock that only the contenders move."""

import pytest

from glassformer.core.errors import ConfigError
from peers.timing import LEAST_ROUNDS, MOST_STEPS, Race, Spread, race


class Clock:
    """A clock that stands still until somebody works."""

    def __init__(self):
        self.now = 0.0
        self.turns = []

    def __call__(self):
        return self.now


class Runner:
    """Takes the seconds it is told to for every step; the first is slow, as if something were compiled."""

    def __init__(self, name, clock, each=0.1, first=5.0):
        self.name, self.clock, self.each, self.first = name, clock, each, first
        self.ran = []

    def run(self, steps):
        self.clock.turns.append(self.name)
        self.ran.append(steps)
        seconds = [self.each] * steps
        if len(self.ran) == 1:
            seconds[0] = self.first
        self.clock.now += sum(seconds)
        return seconds


@pytest.fixture
def clock():
    return Clock()


def test_contenders_take_turns_in_the_same_order(clock):
    names = "A", "B", "C"
    race([Runner(name, clock) for name in names], seconds=20, clock=clock)
    turns = "".join(clock.turns).removeprefix("AABBCC")  # which warmed up
    assert len(turns) >= 3 * LEAST_ROUNDS
    assert turns == "ABC" * (len(turns) // 3)


def test_what_happens_while_warming_up_is_not_counted(clock):
    result = race([Runner("A", clock, each=0.1, first=60.0)], seconds=5, clock=clock)
    assert result.seconds("A") == Spread(0.1, 0.1, 0.1, result.seconds("A").count)


def test_a_round_takes_as_many_steps_as_fill_its_time(clock):
    quick, slow, instant = Runner("quick", clock, 0.01), Runner("slow", clock, 3.0), Runner("instant", clock, 0.0)
    race([quick, slow, instant], seconds=1, round_seconds=0.5, clock=clock)
    assert quick.ran[-1] == 50
    assert slow.ran[-1] == 1
    assert instant.ran[-1] == MOST_STEPS


def test_the_budget_ends_the_race_before_it_is_exceeded(clock):
    runner = Runner("A", clock, each=0.5, first=0.5)
    result = race([runner], seconds=10, round_seconds=1.0, clock=clock)
    assert len(result.rounds["A"]) == 10


def test_a_spread_is_the_median_and_the_quartiles_and_ratios_are_taken_within_rounds():
    assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 1)
    assert Spread.of([1.0, 2.0]) == Spread(1.5, 1.25, 1.75, 2)
    quiet, busy = [1.0, 1.0], [10.0, 10.0]
    result = Race({"A": [quiet, busy, quiet], "B": [[2.0, 2.0], [20.0, 20.0], [2.0, 2.0]]})
    assert result.times_faster("A", "B") == Spread(2.0, 2.0, 2.0, 3)
    assert result.times_faster("B", "A") == Spread(0.5, 0.5, 0.5, 3)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_that_is_not_positive_is_refused(seconds):
    with pytest.raises(ConfigError, match="the time to measure is"):
        race([], seconds=seconds)
