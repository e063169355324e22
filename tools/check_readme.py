#!/usr/bin/env python3
"""Runs the commands that a document shows and compares their output with what the document prints.

    tools/check_readme.py BUILD_DIR DOCUMENT...

In blocks fenced as ```console or ```sh, a line "$ build/qkv …" (or ./build/qkv) is a command, continued
by a backslash at the end, and the lines up to the next "$ " are its output. A line "…" stands for any number of
lines, "…" within a line for any text in it; everything else is compared literally. A command shown
without output must only succeed. Commands run in a scratch copy of the repository's root (links to its
entries, `build` to BUILD_DIR), so that files they write do not land in the repository. A block fenced as
```cpp must stand, line for line, in tests/consumer/main.cpp, which is built against an installed package.
"""

import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ELISION = "…"
CODE = re.compile(r"^```cpp\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(console|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def examples(document):
    """Yields (command, lines of expected output)."""
    for fence in FENCE.finditer(document):
        command, expected = None, []
        lines = iter(fence.group(2).splitlines())
        for line in lines:
            if line.startswith("$ "):
                if command:
                    yield command, expected
                command, expected = line[2:], []
                while command.endswith("\\"):
                    command = command[:-1] + next(lines, "").strip()
            elif command:
                expected.append(line.rstrip())
        if command:
            yield command, expected


def matches(expected, output):
    parts = []
    for line in expected:
        if line.strip() == ELISION:
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append("[^\n]*?".join(re.escape(text) for text in line.split(ELISION)) + r"[ ]*\n")
    return re.fullmatch("".join(parts), output) is not None


def run(command, root, build):
    with tempfile.TemporaryDirectory() as scratch:
        for entry in root.iterdir():
            if entry.name != "build":
                os.symlink(entry, os.path.join(scratch, entry.name))
        os.symlink(build, os.path.join(scratch, "build"))
        return subprocess.run(
            ["bash", "-c", command],
            cwd=scratch,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def check(document, root, build):
    """Prints what differs; returns (commands run, commands that failed)."""
    ran = failed = 0
    consumer = (root / "tests/consumer/main.cpp").read_text(encoding="utf-8")
    for block in CODE.finditer(document.read_text(encoding="utf-8")):
        if block.group(1) not in consumer:
            failed += 1
            print(f"{document.name}: this code is not in tests/consumer/main.cpp\n{block.group(1)}")
    for command, expected in examples(document.read_text(encoding="utf-8")):
        if not re.match(r"(\./)?build/qkv\b", command):
            continue
        ran += 1
        result = run(command, root, build)
        while expected and not expected[-1]:
            expected.pop()
        output = result.stdout.rstrip("\n") + "\n"
        if result.returncode != 0:
            problem = f"exit code {result.returncode}\n{output}"
        elif expected and not matches(expected, output):
            shown = output.splitlines()
            problem = "\n".join(difflib.unified_diff(expected, shown, "shown", "printed", lineterm=""))
        else:
            continue
        failed += 1
        print(f"{document.name}: $ {command}\n{problem}\n")
    return ran, failed


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    root = pathlib.Path(__file__).resolve().parent.parent
    failures = 0
    for name in sys.argv[2:]:
        ran, failed = check(pathlib.Path(name), root, build)
        print(f"{name}: {ran} commands, {failed} failed")
        failures += failed + (ran == 0)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
