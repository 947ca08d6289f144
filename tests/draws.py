"""How many examples hypothesis draws, for tests that want more or fewer than others.

The profile says how many that is and whether they are the same in every run: `suite` or `fuzz`, see conftest.py. Tests
set neither themselves, so that nothing in the suite is left to chance and `make fuzz` reaches all of them.
"""

from hypothesis import settings


def draws(times: float, **others) -> settings:
    """Draw so many times the examples of the profile; at least one."""
    return settings(max_examples=max(1, round(times * settings.default.max_examples)), **others)
