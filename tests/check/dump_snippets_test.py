"""Runs every block of code in docs/dump.md and holds the dump that it writes against the oracle."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "dump.md"
BLOCK = re.compile(r"^### (.*?)$.*?^```(python|c|cpp)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SNIPPETS = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))


def run(command, folder, **environment):
    result = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def run_python(code, folder):
    (folder / "snippet.py").write_text(code, encoding="utf-8")
    run([sys.executable, "snippet.py"], folder)


def run_c(code, folder):
    (folder / "snippet.c").write_text(code, encoding="utf-8")
    compiler = os.environ.get("CC", "cc")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_FILE_OFFSET_BITS=64", "-I."]
    run([compiler, *flags, HERE / "dump_snippet_main.c", "-o", "snippet", "-lm"], folder)
    run(["./snippet"], folder)


def run_cpp(code, folder):
    program = pathlib.Path(os.environ["QKV_DUMP_SNIPPET"])
    assert code in program.with_name("dump_snippet.cpp").read_text(encoding="utf-8")
    run([program], folder)


def test_every_language_is_shown():
    assert [language for _, language, _ in SNIPPETS].count("python") >= 5
    assert {language for _, language, _ in SNIPPETS} == {"python", "c", "cpp"}


@pytest.mark.parametrize(
    "language, code", [s[1:] for s in SNIPPETS], ids=[s[0] for s in SNIPPETS]
)
def test_snippet(language, code, tmp_path):
    {"python": run_python, "c": run_c, "cpp": run_cpp}[language](code, tmp_path)
    dumps = list(tmp_path.glob("dump.*"))
    assert len(dumps) == 1
    verdict = run([os.environ["QKV_COMMAND"], "check", "--no-diagnosis", dumps[0]], tmp_path)
    assert verdict.startswith(f"{dumps[0]}: matches\n")
