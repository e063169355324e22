"""Files say what was meant: a reader that knows docs/dump.md alone finds what right code wrote."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from correct import correct_dumps
from read_dump import expected, load
from score import Score, judge

HERE = Path(__file__).parent
UNIT = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def make(folder, *arguments):
    subprocess.run(
        [sys.executable, HERE / "make_dumps.py", "--out", folder, *arguments], check=True
    )
    return json.loads((folder / "index.json").read_text())


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    folder = tmp_path_factory.mktemp("right")
    return folder, make(folder, "--seed", "5", "--correct", "--count", "600")


def test_right_dumps_hold_the_formula(right):
    folder, index = right
    for record in index:
        if record["kind"] in ("huge", "large scores"):
            continue  # how far rounding may carry those is the checker's to say
        tensors, told = load(folder / record["file"])
        out, lse, empty = expected(tensors, told)
        actual, narrow = tensors["out"], record["dtype"] in ("bfloat16", "float16")
        allowed = (8 if narrow else 200) * UNIT[record["dtype"]]
        if told["empty_row"] == "any" or "read_rows" in tensors:
            continue
        scale = out[out.isfinite()].abs().max() if out.isfinite().any() else 1
        torch.testing.assert_close(
            actual / scale,
            out / scale,
            rtol=0,
            atol=allowed,
            equal_nan=True,
            msg=lambda m, r=record: f"{r}: {m}",
        )
        if "lse" in tensors:
            shown = ~empty[..., 0]
            torch.testing.assert_close(
                tensors["lse"][shown], lse[shown], rtol=allowed, atol=allowed
            )


def test_right_dumps_are_of_all_kinds(right):
    _, index = right
    kinds, implementations = Counter(r["kind"] for r in index), Counter(
        r["implementation"] for r in index
    )
    assert len(index) == 600
    assert {"tiny", "huge", "empty rows", "projected", "packed", "rotary", "statistics"} <= set(
        kinds
    )
    assert {"torch_fused", "torch_by_hand", "tiled_online", "numpy_by_hand", "renormalised"} <= set(
        implementations
    )
    assert {r["dtype"] for r in index} == set(UNIT)


def test_files_do_not_tell(tmp_path):
    index = make(tmp_path, "--seed", "6", "--classes", "M2", "S1", "H1", "--count", "8")
    for record in index:
        _, told = load(tmp_path / record["file"])
        assert not {"M2", "S1", "H1", "bug"} & set(told.values()) and told["source"] in (
            "random",
            "real",
        )


def test_wrong_dumps_differ_from_the_formula(tmp_path):
    classes = ["M1", "M3", "M7", "S1", "S4", "H2", "G1", "R1", "Q2", "X1"]
    for record in make(
        tmp_path, "--seed", "7", "--classes", *classes, "--count", "8", "--dtype", "float64"
    ):
        tensors, told = load(tmp_path / record["file"])
        if "read_rows" in tensors or told["empty_row"] == "any":
            continue
        out, _, _ = expected(tensors, told)
        same = torch.allclose(tensors["out"], out, rtol=1e-9, atol=1e-9, equal_nan=True)
        assert same != record["shows"], record


def test_a_seed_decides_everything(tmp_path):
    first, again, other = (
        make(tmp_path / name, "--seed", seed, "--pairs", "--count", "6")
        for name, seed in (("first", "8"), ("again", "8"), ("other", "9"))
    )
    assert first == again and [r["sizes"] for r in first] != [r["sizes"] for r in other]
    for record in first:
        assert len(record["ids"]) == 2
        (tensors, told), (same, told_again) = (
            load(tmp_path / n / record["file"]) for n in ("first", "again")
        )
        assert told == told_again and tensors.keys() == same.keys()
        for name, t in tensors.items():
            torch.testing.assert_close(t, same[name], rtol=0, atol=0, equal_nan=True)


def answer(*explanations, verdict="differs"):
    return {
        "verdict": verdict,
        "diagnoses": [{"id": ids[0], "ids": list(ids)} for ids in explanations],
    }


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (answer(("M12",)), "named"),
        (answer(("M7",), ("M12",)), "named"),
        (answer(("M7",)), "within"),
        (answer(("M2",)), "wrong"),
        (answer(("M2",), ("M12",)), "wrong"),
        (answer(), "unexplained"),
        (answer(verdict="matches"), "missed"),
        (None, "error"),
    ],
)
def test_outcomes(given, outcome):
    record = {"ids": ["M12"], "aliases": [["M7"]], "shows": True}
    assert judge(record, given)[0] == outcome


def test_bars():
    score = Score()
    record = dict(
        file="f",
        ids=["M1"],
        aliases=[],
        shows=True,
        dtype="float32",
        activations="real",
        shape="gqa",
    )
    for _ in range(19):
        score.add(record, answer(("M1",)))
    assert score.missed_bars() == []
    score.add(record, answer(verdict="matches"))
    assert score.missed_bars() == ["M1: 1 missed, expected none"]
    score.add(
        record | {"ids": [], "shows": False, "implementation": "numpy_by_hand"}, answer(("M1",))
    )
    assert score.missed_bars()[1:] == ["numpy_by_hand: 1 right dumps called wrong"]


def test_the_whole_run(tmp_path):
    """A command that calls everything right: right dumps pass, the others are missed."""
    command = tmp_path / "qkv.py"
    command.write_text(
        "import json, sys\n"
        "for file in sys.argv[3:]:\n"
        "    print(json.dumps({'file': file, 'verdict': 'matches', 'diagnoses': []}))\n"
    )
    make(tmp_path / "right", "--seed", "3", "--correct", "--count", "12")
    make(tmp_path / "wrong", "--seed", "3", "--classes", "S1", "--count", "3")
    scored = [sys.executable, HERE / "score.py", "--qkv", sys.executable, command]
    scored = [subprocess.run([*scored, "--", tmp_path / n]).returncode for n in ("right", "wrong")]
    assert scored == [0, 1]


def test_enough_right_dumps_of_one_dtype():
    assert len(list(correct_dumps(3, 30, ["bfloat16"]))) == 30
