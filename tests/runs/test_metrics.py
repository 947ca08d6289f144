"""The metrics file: whatever became of it, what can be read of it is read."""

import json

import pytest

from glassformer.runs.folder import read_metrics

LINES = [{"step": 1, "loss": 2.0, "lr": 0.1}, {"step": 2, "loss": None, "val_loss": 1.5, "best": True, "accuracy": 0.5}]


def test_lines_come_back(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == ([], 0)
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    assert read_metrics(tmp_path / "metrics.jsonl") == (LINES, 0)


DAMAGED = {
    "cut off": b'{"step": 3, "lo',
    "no text": b"\xff\xfe",
    "zeros": b"\0" * 100,
    "a number": b"12",
    "empty": b"{}",
    "no loss": b'{"step": 3}',
    "no step": b'{"loss": 3.0}',
    "a step of text": b'{"step": "3", "loss": 1.0}',
    "a step that is none": b'{"step": true, "loss": 1.0}',
    "a step before the first": b'{"step": -3, "loss": 1.0}',
    "a loss of text": b'{"step": 3, "loss": "1.0"}',
    "seconds of a list": b'{"step": 3, "loss": 1.0, "seconds": []}',
    "an evaluation that is not judged": b'{"step": 3, "loss": 1.0, "val_loss": 1.0}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_what_is_no_line_of_a_step_is_left_out_and_counted(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    first, second = (json.dumps(line).encode() for line in LINES)
    path.write_bytes(b"\n".join([first, DAMAGED[damage], second, b""]))
    assert read_metrics(path) == (LINES, 1)
