"""Right dumps: several implementations, magnitudes, empty rows, and what only looks wrong."""

import numpy as np

from draw import MODIFIERS, Wish, draw
from implementations import IMPLEMENTATIONS, NOT_A_BUG, plugin

SHAPES = (
    "probe",
    "square",
    "gqa",
    "mqa",
    "cross",
    "tiny",
    "minilm-layer0",
    "minilm-layer4",
    "smollm2-layer11",
)
NEEDED = {
    "alibi_of_the_key": Wish(features=("alibi",), parts=("causal",)),
    "equal_shift": Wish(features=("rotary",)),
    "key_bias_left_out": Wish(features=("projections", "wo", "biases")),
}
LARGEST_POWER = {"float16": 3, "bfloat16": 20, "float32": 20, "float64": 100}


def kinds(rng, dtype):
    """What the case is to be like."""
    power = LARGEST_POWER[dtype]
    modifiers = tuple(m for m in MODIFIERS if rng.random() < 0.15)
    return {
        "ordinary": Wish(features=modifiers),
        "tiny": Wish(gain=(1e-4, 1e-2), value_gain=10.0 ** -int(rng.integers(1, power))),
        "huge": Wish(gain=(8, 60), value_gain=10.0 ** int(rng.integers(1, power)), style="fused"),
        "large scores": Wish(gain=(2, 5)),
        "empty rows": Wish(empty_rows=True, some_part=True),
        "projected": Wish(features=("projections", "wo")),
        "packed": Wish(features=("projections", "wo", "packed", "one-width")),
        "rotary": Wish(features=("rotary", *modifiers)),
        "statistics": Wish(features=modifiers, carries=("lse", "weights")),
        "second run": Wish(features=modifiers, carries=("out2",)),
    }


def correct_dumps(seed, count, dtypes, plugin_name=None):
    implementations = dict(IMPLEMENTATIONS)
    if plugin_name:
        function = plugin(plugin_name)
        implementations[function.__name__] = function
    names = [*implementations, *implementations, *NOT_A_BUG]
    made, turn = 0, 0
    while made < count and turn < 20 * count:
        rng = np.random.default_rng([seed, turn, 3])
        name, dtype = names[turn % len(names)], dtypes[int(rng.integers(len(dtypes)))]
        turn += 1
        dump = one(rng, name, implementations.get(name) or NOT_A_BUG[name], dtype)
        if dump:
            made += 1
            yield dump


def one(rng, name, implementation, dtype):
    wishes = kinds(rng, dtype)
    kind = list(wishes)[int(rng.integers(len(wishes)))]
    wish = wishes[kind]
    wish = NEEDED.get(name, wish)
    shapes = SHAPES if rng.random() > 0.01 else ("larger",)
    if "projections" in wish.features:
        shapes = (
            ("probe", "square", "gqa", "cross", "tiny")
            if rng.random() > 0.05
            else ("minilm-layer0", "minilm-layer4")
        )
    if "packed" in wish.features:
        shapes = ("square", "gqa")
    case = draw(rng, wish, dtype, shapes[int(rng.integers(len(shapes)))])
    if case is None:
        return None
    shown = implementation(case, rng)
    if shown is None:
        return None
    case.carries = case.carries & {*shown, "out2", "gradients"}
    if "out2" in case.carries:
        shown["out2"] = shown["out"]
    record = {"ids": [], "variants": [], "parameters": [], "aliases": [], "shows": False}
    record |= {"implementation": name, "kind": name if name in NEEDED else kind}
    return {"case": case, "shown": shown, "record": record}
