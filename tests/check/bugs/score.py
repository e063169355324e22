"""Runs `qkv check` over dumps with known mistakes and says how well it named them.

  score.py --qkv build/qkv DIR... [--markdown FILE]

DIR holds what make_dumps.py wrote. FILE gets the tables between its lines <!-- scores --> and
<!-- /scores -->, where it has them. The exit status is 1 where a bar is missed: of single mistakes
95 % are named, and 90 % in every class; of pairs 70 %, and none as something that is not there; no
right dump is called wrong, and none that differs is called right.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILES_A_CALL = 16
OUTCOMES = ("named", "within", "half", "wrong", "unexplained", "missed", "error")
HIDDEN = "a mistake that does not show"
NAMED, NAMED_A_CLASS, NAMED_PAIRS = 0.95, 0.90, 0.70


def answers(command, folder, records):
    """One JSON object a file, by file name. Dumps are small: a thread each, and many at a time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def some(begin):
        files = [str(folder / r["file"]) for r in records[begin : begin + FILES_A_CALL]]
        ran = subprocess.run(
            [*command, "check", "--json", *files],
            capture_output=True,
            text=True,
            env=environment,
        )
        if ran.returncode not in (0, 1):
            told = ran.stderr.strip()[:400]
            print(f"qkv check: status {ran.returncode}: {told}", file=sys.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        calls = pool.map(some, range(0, len(records), FILES_A_CALL))
        return {Path(answer["file"]).name: answer for call in calls for answer in call}


def ids_of(diagnosis):
    return sorted(diagnosis.get("ids") or [diagnosis["id"]])


def judge(record, answer):
    """An outcome, and whom the dump was taken for.

    named: the truth comes first, or beside another explanation that fits equally.
    within: only the other one is named.
    half: of two mistakes one is named, and nothing that is not there.
    A mistake that the generator holds for hidden, and that is named all the same, is no false alarm.
    """
    if answer is None or answer.get("verdict") not in ("matches", "differs"):
        return "error", "error"
    differs = answer["verdict"] == "differs"
    explanations = [ids_of(d) for d in answer.get("diagnoses", [])]
    truth = sorted(record["ids"])
    if not record["shows"]:
        right = not differs or (truth and truth in explanations)
        return ("right", "") if right else ("false alarm", label(answer))
    if not differs:
        return "missed", "matches"
    if not explanations:
        return "unexplained", "unexplained"
    equal = [sorted(ids) for ids in record["aliases"]]
    first = explanations[0]
    if first == truth or (first in equal and truth in explanations):
        return "named", "+".join(first)
    if first in equal:
        return "within", "+".join(first)
    return ("half" if set(first) < set(truth) else "wrong"), "+".join(first)


def label(answer):
    diagnoses = answer.get("diagnoses", [])
    return "+".join(ids_of(diagnoses[0])) if diagnoses else "unexplained"


class Score:
    def __init__(self):
        self.classes = defaultdict(Counter)  # "M2", "pairs" -> outcome -> count
        self.taken = defaultdict(Counter)  # class -> whom its dumps were taken for
        self.groups = defaultdict(Counter)  # "float16", "real", "gqa" -> outcome -> count
        self.right = defaultdict(Counter)  # implementation, or HIDDEN -> outcome
        self.failures = []

    def add(self, record, answer):
        outcome, taken = judge(record, answer)
        if outcome not in ("named", "right"):
            self.failures.append(
                f"{record['file']}: {'+'.join(record['ids']) or 'right'} -> {outcome} {taken}"
            )
        if not record["shows"]:
            self.right[record.get("implementation") or HIDDEN][outcome] += 1
            return
        pair = len(record["ids"]) == 2
        name = "pairs" if pair else record["ids"][0]
        self.classes[name][outcome] += 1
        if outcome != "named":
            self.taken[name][f"{'+'.join(record['ids'])} → {taken}" if pair else taken] += 1
        if not pair:
            for group in (record["dtype"], record["activations"], record["shape"]):
                self.groups[group][outcome] += 1

    def missed_bars(self):
        singles = [c for name, c in self.classes.items() if name != "pairs"]
        total = sum(singles, Counter())
        missed = []
        if total and share(total) < NAMED:
            missed.append(f"singles: {share(total):.1%} named, expected {NAMED:.0%}")
        for name, counts in self.classes.items():
            bar = NAMED_PAIRS if name == "pairs" else NAMED_A_CLASS
            if share(counts) < bar:
                missed.append(f"{name}: {share(counts):.1%} named, expected {bar:.0%}")
            for outcome in ("missed", "error", *(["wrong"] if name == "pairs" else [])):
                if counts[outcome]:
                    missed.append(f"{name}: {counts[outcome]} {outcome}, expected none")
        for name, counts in self.right.items():
            if sum(counts.values()) != counts["right"]:
                missed.append(
                    f"{name}: {sum(counts.values()) - counts['right']} right dumps called wrong"
                )
        return missed

    def markdown(self):
        lines = table("class", self.classes, self.taken)
        singles = {"all": sum((c for n, c in self.classes.items() if n != "pairs"), Counter())}
        lines += ["", *table("single mistakes", {**singles, **self.groups}, {})]
        lines += ["", "| right dumps | dumps | called right | false alarms |", "|---|---|---|---|"]
        right = {**self.right, "all": sum(self.right.values(), Counter())}
        for name, counts in right.items():
            n = sum(counts.values())
            lines.append(f"| {name} | {n} | {counts['right']} | {n - counts['right']} |")
        return "\n".join(lines) + "\n"


def share(counts):
    return counts["named"] / max(1, sum(counts.values()))


def table(title, rows, taken):
    lines = [
        f"| {title} | dumps | {' | '.join(OUTCOMES)} | % named |{' taken for |' if taken else ''}"
    ]
    lines.append("|---" * (len(OUTCOMES) + 3 + bool(taken)) + "|")
    for name, counts in rows.items():
        cells = [
            name,
            sum(counts.values()),
            *(counts[o] for o in OUTCOMES),
            f"{100 * share(counts):.0f}",
        ]
        if taken:
            most = taken[name].most_common(5) if name in taken else []
            cells.append(", ".join(f"{whom} ×{times}" for whom, times in most))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def store(path, tables):
    marked = f"<!-- scores -->\n\n{tables}\n<!-- /scores -->"
    page = path.read_text(encoding="utf-8") if path.exists() else marked
    page = re.sub("<!-- scores -->.*<!-- /scores -->", lambda _: marked, page, flags=re.DOTALL)
    path.write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--qkv", nargs="+", required=True, help="the command, such as build/qkv")
    parser.add_argument("--markdown", type=Path, help="where the tables go as well")
    parser.add_argument(
        "--failures", type=int, default=20, help="how many dumps to name that were not"
    )
    options = parser.parse_args()

    score, begin = Score(), time.monotonic()
    for folder in options.folders:
        records = json.loads((folder / "index.json").read_text())
        found = answers(options.qkv, folder, records)
        for record in records:
            score.add(
                record | {"file": f"{folder.name}/{record['file']}"}, found.get(record["file"])
            )
    tables = score.markdown()
    print(tables)
    if options.markdown:
        minutes, threads = (time.monotonic() - begin) / 60, len(os.sched_getaffinity(0))
        store(options.markdown, f"{tables}\n`qkv check` took {minutes:.0f} min on {threads} cores.\n")
    for failure in score.failures[: options.failures]:
        print(failure, file=sys.stderr)
    missed = score.missed_bars()
    for bar in missed:
        print(f"missed: {bar}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
