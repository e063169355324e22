"""Runs PyTorch's FlexAttention for `qkv bench`, and measures it.

    python flex_attention.py [--eager] [--as-shipped]

Reads requests from standard input, a JSON object a line, and answers each with a line:

    {"do": "prepare", "inputs": FILE, "rule": "window" or "documents", "size", "threads"}
        query, key and value [B,H,T,D] from a safetensors file; block masks are made, which is not measured
        -> {"version", "forms": [name, ...]}
    {"do": "run", "form": i}
        calls form i twice, of which the second is measured; its first run compiles and measures the memory, too
        -> {"seconds", "extra_bytes": number or null}
    {"do": "save", "results": FILE}
        the output of the latest run
        -> {}

An answer {"missing": why} says that a package is, {"error": why} that a request failed. Ends with its input.
--eager compiles nothing, --as-shipped leaves the allocator as it is.
"""

import ctypes
import json
import os
import platform
import sys
import time

# Answers go to where standard output went; what libraries print there goes to standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
libc = ctypes.CDLL(None)
eager = "--eager" in sys.argv

# The default, and one that fits masks more closely; where nothing is compiled they do not differ.
BLOCK_SIZES = (128,) if eager else (128, 64)


def answer(**fields):
    answers.write(json.dumps(fields) + "\n")


try:
    import torch
    from safetensors.torch import load_file, save_file
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError as error:
    sys.stdin.readline()  # whoever asks gets an answer
    answer(missing=str(error))
    sys.exit(3)


def keep_memory():
    """glibc keeps what is freed, so that no call pays for page faults: what the C++ peer gets, too."""
    m_trim_threshold, m_mmap_max = -1, -4
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, 2**31 - 1)


def peak_extra_memory(call):
    """Bytes by which resident memory rises, as src/bench/peak_memory.h counts them; None where unknown."""

    def status(name):
        with open("/proc/self/status") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

    libc.malloc_trim(0)
    try:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        before = status("VmRSS:")
        call()
        return max(0, status("VmHWM:") - before)
    except (OSError, StopIteration):
        return None


class Case:
    """One call, in the forms of its block sizes."""

    def __init__(self, request):
        torch.set_num_threads(request["threads"])
        inputs = load_file(request["inputs"])
        self.inputs = [inputs[name].clone() for name in ("query", "key", "value")]
        size = request["size"]

        def window(b, h, query, key):
            return (query >= key) & (query - key < size)

        def documents(b, h, query, key):
            return query // size == key // size

        rule = {"window": window, "documents": documents}[request["rule"]]
        tokens = self.inputs[0].shape[2]
        self.masks = [
            create_block_mask(rule, None, None, tokens, tokens, device="cpu", BLOCK_SIZE=block)
            for block in BLOCK_SIZES
        ]
        torch._dynamo.reset()
        self.function = flex_attention if eager else torch.compile(flex_attention, dynamic=False)
        self.memory = {}
        self.output = None

    def forms(self):
        how = "eager" if eager else "torch.compile"
        return [f"flex_attention, {how}, blocks of {block}" for block in BLOCK_SIZES]

    def call(self, form):
        self.output = None
        with torch.inference_mode():
            self.output = self.function(*self.inputs, block_mask=self.masks[form])

    def run(self, form):
        if form not in self.memory:
            self.call(form)
            self.memory[form] = peak_extra_memory(lambda: self.call(form))
        self.call(form)
        begin = time.perf_counter()
        self.call(form)
        return {"seconds": time.perf_counter() - begin, "extra_bytes": self.memory[form]}


def why(error):
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def main():
    if "--as-shipped" not in sys.argv:
        keep_memory()
    case = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request["do"] == "prepare":
                case = Case(request)
                version = f"PyTorch {torch.__version__} in Python {platform.python_version()}"
                answer(version=version, forms=case.forms())
            elif request["do"] == "run":
                answer(**case.run(request["form"]))
            else:
                save_file({"output": case.output.contiguous()}, request["results"])
                answer()
        except Exception as error:  # whatever it is, who asked wants to know
            answer(error=why(error))


if __name__ == "__main__":
    main()
