"""Makes dumps of every class, pairs and right ones, and holds what `qkv check` says of them to its bars."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUGS = Path(__file__).resolve().parent / "bugs"
KINDS = {
    "singles": ["--count", "4"],
    "pairs": ["--pairs", "--count", "60"],
    "right": ["--correct", "--count", "150", "--plugin", "engine:engine"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_bars(kind, tmp_path):
    make = [sys.executable, BUGS / "make_dumps.py", "--out", tmp_path, "--seed", "61"]
    subprocess.run([*make, *KINDS[kind]], check=True)
    score = [sys.executable, BUGS / "score.py", "--qkv", os.environ["QKV_COMMAND"], "--", tmp_path]
    scored = subprocess.run(score, capture_output=True, text=True)
    assert scored.returncode == 0, scored.stdout + scored.stderr
