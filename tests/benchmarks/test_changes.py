"""The campaign of changes notices what it is there for: changes that are left out, and others than were asked for."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
# In a process of its own, since the campaign registers parts. What is spoiled is what reaches the model that writes.
PROGRAM = """
import changes, _change_cases, _change_judge
from glassformer.interpret import add

changes._quiet()
written = _change_judge.written
spoiled = {
    "not fired": lambda case, chosen: written(case, []),
    "different": lambda case, chosen: written(case, [*chosen, add("logits", 0.01, feature=0)]),
}
tried = 0
for number in range(25):
    case = _change_cases.case(number, {"numpy": 1}, 0)
    if not case.numbers or _change_judge.verdict(case)[0] != "same":
        continue
    tried += 1
    for verdict, _change_judge.written in spoiled.items():
        found = _change_judge.verdict(case)
        assert found[0] == verdict, (verdict, found, str(case))
    _change_judge.written = written
assert tried >= 5, tried
"""


def test_a_change_that_is_left_out_or_another_one_is_noticed():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
