"""What a report says, and that it fits into JSON."""

import json
import math

import pytest

from glassformer.bench.report import SECONDS, Bar, Check, Figure, Report
from glassformer.bench.timing import Spread

SPREAD = Spread(2.0, 1.0, 3.0, 5)


@pytest.mark.parametrize(
    ("value", "bar", "at_most", "ok"),
    [
        (2.0, 2.0, False, True),
        (1.9, 2.0, False, False),
        (1.2, 1.2, True, True),
        (1.3, 1.2, True, False),
        (math.nan, 1.2, True, False),
        (math.nan, 1.2, False, False),
    ],
)
def test_a_bar_is_reached_or_missed(value, bar, at_most, ok):
    assert Bar("speed", value, bar, at_most).ok is ok


def test_a_missed_bar_is_a_result_but_a_difference_is_a_failure():
    missed = Report("a", "A", SECONDS, "", [], bars=[Bar("speed", 1.0, 2.0)])
    different = Report("a", "A", SECONDS, "", [], checks=[Check("losses", 0.1, 1e-4)])
    assert missed.ok
    assert not different.ok


def test_a_check_without_a_number_fails():
    assert not Check("losses", math.nan, 1e-4).ok


def test_a_report_becomes_json_of_a_fixed_form():
    report = Report(
        name="train/tiny",
        title="one step",
        unit=SECONDS,
        ratio="× as fast as B",
        figures=[Figure("A", SPREAD, SPREAD), Figure("B", SPREAD)],
        bars=[Bar("speed", 3.0, 2.0)],
        checks=[Check("losses", 0.0, 1e-4)],
        notes=["a note"],
        facts={"layers": 1},
    )
    found = json.loads(json.dumps(report.to_dict()))
    spread = {"median": 2.0, "low": 1.0, "high": 3.0, "count": 5}
    assert found == {
        "name": "train/tiny",
        "title": "one step",
        "unit": "seconds",
        "ratio": "× as fast as B",
        "figures": [{"name": "A", "value": spread, "ratio": spread}, {"name": "B", "value": spread, "ratio": None}],
        "bars": [{"what": "speed", "value": 3.0, "bar": 2.0, "at_most": False, "ok": True}],
        "checks": [{"what": "losses", "error": 0.0, "limit": 1e-4, "ok": True}],
        "notes": ["a note"],
        "facts": {"layers": 1},
        "ok": True,
    }


def test_an_empty_report_becomes_json_too():
    found = Report("a", "A", SECONDS, "", []).to_dict()
    assert found["bars"] == found["checks"] == found["notes"] == found["figures"] == []
