"""Every class with its variants: what a case must have, and the parameters to draw."""

from dataclasses import dataclass
from itertools import permutations
from typing import Callable

from case import Bug
from draw import Wish
from shapes import REAL

SELF = ("square", "gqa", "larger", *REAL)
APART = ("probe", "cross")
GROUPED = ("probe", "gqa", "smollm2-layer11")
MINI = ("minilm-layer0", "minilm-layer4")
RANDOM = ("probe", "square", "gqa", "cross")


@dataclass
class Injection:
    id: str
    variant: str
    wish: Wish
    parameters: Callable = lambda rng, case: {}  # None: not in this case

    def bug(self, rng, case):
        parameters = self.parameters(rng, case)
        return None if parameters is None else Bug(self.id, self.variant, parameters)


def pick(rng, options):
    return options[int(rng.integers(len(options)))] if options else None


def part_of(*allowed, whole=True):
    """Which rule is got wrong: one of those there, or all of them."""

    def draw(rng, case):
        there = [p for p in case.parts if p in allowed]
        return {"part": pick(rng, there + ["all"] if whole else there)} if there else None

    return draw


def other_offset(rng, case):
    """The other named corner."""
    room = case.S - case.T
    other = room if case.offset == 0 else 0
    return {"offset": other} if other != case.offset else None


def one_of(name, *values):
    return lambda rng, case: {name: pick(rng, values)}


def tile(rng, case):
    tiles = [t for t in (4, 8, 16, 32, 64, 128) if case.S % t and t < 4 * case.S]
    return {"tile": pick(rng, tiles)} if tiles else None


def wider_by_one(rng, case):
    return {} if case.window[0] is not None and case.S > case.window[0] + 1 else None


def order(rng, case):
    """Readings of [q; k; v] whose pieces have the sizes of the right ones in all."""
    if case.H != case.Hkv or case.Dk != case.Dv:
        return {"order": "qvk"} if case.Dk == case.Dv else None
    return {"order": "".join(pick(rng, list(permutations("qkv"))[1:]))}


def interleaved(rng, case):
    return {} if case.H == case.Hkv and case.Dk == case.Dv else None


def wrong_weight(rng, case):
    """Which projection takes whose weight, v from Wk and the like: rows must fit."""
    same_width, same_heads = case.Dk == case.Dv, case.H == case.Hkv
    choices = [{"k": "v"}, {"v": "k"}, {"k": "v", "v": "k"}] if same_width else []
    choices += [{"k": "q"}, {"q": "k"}, {"k": "q", "q": "k"}] if same_heads else []
    choices += [{"v": "q"}, {"q": "v"}] if same_width and same_heads else []
    return pick(rng, choices)


def square_weights(rng, case):
    """Of which projections; each must be square."""
    if case.D != case.H * case.Dk or case.H != case.Hkv or case.Dk != case.Dv:
        return {"of": "q"} if case.D == case.H * case.Dk else None
    return {"of": pick(rng, ["q", "k", "v", "qkv", "o", "qkvo"])}


def missing_bias(rng, case):
    biases = {**case.projections.biases, "o": case.bo}
    free = [n for n in "qvo" if biases[n] is not None]
    if case.rotary or case.qk_norm:
        free += ["k"] if biases["k"] is not None else []
    return {"of": pick(rng, free)} if free else None


def chunk(rng, case):
    return {"chunk": int(rng.integers(2, max(3, case.S // 2)))}


def base(rng, case):
    return {
        "base": pick(rng, [b for b in (100.0, 1e3, 1e4, 1e5, 5e5, 1e6) if b != case.rotary.base])
    }


def constant(rng, case):
    return {"scale": pick(rng, [0.5, 0.125, 0.25, 0.0625, 0.7])}


def make():
    masks = part_of("causal", "padding", "window", "mask", "documents")
    shown = dict(some_part=True)
    overflowing = dict(dtypes=("float16",), style="fused", features=("plain",))
    items = [
        ("M1", "complement", Wish(**shown), part_of("causal", "window", "padding", "mask", "documents")),
        ("M2", "", Wish(shapes=SELF, parts=("padding",))),
        ("M13", "", Wish(shapes=("token-heads",), parts=("padding",))),
        ("M3", "", Wish(**shown), masks),
        *[
            ("M4", v, Wish(**shown), masks)
            for v in ("times-mask", "tiny-fill", "tiny-added", "one-zero-added")
        ],
        (
            "M5",
            "finite",
            Wish(gain=(4, 80), **shown),
            one_of("fill", -10.0, -20.0, -50.0, -100.0, -1000.0, -1e4),
        ),
        ("M5", "overflow", Wish(empty_rows=True, policy="mean", gain=(4, 12), **shown)),
        *[
            (
                "M6",
                f"{gives}-for-{policy}",
                Wish(empty_rows=True, policy=policy, **shown),
                one_of("gives", gives),
            )
            for policy in ("zero", "mean", "nan")
            for gives in ("zero", "mean", "nan")
            if gives != policy
        ],
        ("M7", "", Wish(**shown), part_of("causal", "padding", "window", "prefix", "mask")),
        ("M8", "diagonal", Wish(parts=("causal",))),
        ("M8", "triangle", Wish(parts=("causal",))),
        ("M9", "wider", Wish(parts=("window",)), wider_by_one),
        ("M9", "narrower", Wish(parts=("window",)), wider_by_one),
        ("M9", "two-sided", Wish(only=("window",))),
        ("M9", "other-side", Wish(parts=("window",))),
        ("M10", "", Wish(shapes=APART, parts=("causal",)), other_offset),
        ("M11", "first-sample", Wish(parts=("padding",))),
        ("M11", "tiled", Wish(parts=("padding",))),
        ("M11", "onto-heads", Wish(shapes=("batch-heads",), parts=("padding",))),
        ("M12", "", Wish(shapes=SELF, parts=("documents",))),
        ("S1", "", Wish()),
        ("S2", "", Wish()),
        ("S3", "twice", Wish()),
        ("S3", "inverted", Wish()),
        ("S3", "constant", Wish(), constant),
        ("S4", "", Wish()),
        ("X1", "queries", Wish(policy="mean")),
        ("X1", "heads", Wish(policy="mean")),
        ("X1", "batch", Wish(policy="mean")),
        ("X2", "", Wish(shapes=SELF)),
        ("H1", "", Wish(layout="BTD")),
        ("H1", "", Wish(shapes=RANDOM, features=("projections",))),
        ("H2", "", Wish(stage="merged")),
        ("H2", "", Wish(shapes=RANDOM, features=("wo",))),
        ("H3", "over-batch", Wish(shapes=SELF, only=(), features=("plain",))),
        ("H3", "over-heads", Wish(shapes=SELF, only=(), features=("plain",))),
        ("H4", "first-head", Wish()),
        ("H4", "mean-weights", Wish()),
        ("H4", "mean-output", Wish()),
        ("H5", "split", Wish(layout="BTD")),
        ("H5", "merge", Wish(stage="merged")),
        ("H5", "both", Wish(layout="BTD", stage="merged")),
        ("G1", "tiled", Wish(shapes=GROUPED)),
        ("G1", "keys-tiled", Wish(shapes=GROUPED)),
        *projection_items(),
        *rotary_items(),
        *extra_items(),
        ("D1", "", Wish(carries=("out2",)), one_of("rate", 0.1, 0.2, 0.5)),
        ("N1", "", Wish(), tile),
        ("N2", "lse-base-2", Wish(carries=("lse",))),
        ("N2", "exp2", Wish(carries=("lse",))),
        ("N2", "exp2", Wish()),
        *[
            ("N3", variant, Wish(shapes=shapes, gain=gain, **overflowing))
            for variant in ("", "saturated")
            for shapes, gain in ((RANDOM, (4e3, 2e4)), (REAL, (150, 900)))
        ],
        *gradient_items(),
    ]
    return [Injection(*item) for item in items]


def projection_items():
    whole = ("projections", "wo")
    packed, separate = ("square", "gqa", "larger", *MINI), ("square", "gqa", "cross", "probe")
    one_width = ("one-width",)
    return [
        ("Q1", "order", Wish(shapes=packed, features=(*whole, *one_width, "packed")), order),
        (
            "Q1",
            "interleave",
            Wish(shapes=("square", *MINI), features=(*whole, "packed")),
            interleaved,
        ),
        ("Q1", "order", Wish(shapes=("square",), features=(*whole, *one_width)), order),
        ("Q2", "", Wish(shapes=separate, features=(*whole, *one_width)), wrong_weight),
        ("Q2", "", Wish(shapes=MINI, features=whole), wrong_weight),
        (
            "Q3",
            "",
            Wish(shapes=separate, features=(*whole, *one_width, "same-heads", "square-out")),
            square_weights,
        ),
        ("Q3", "", Wish(shapes=MINI, features=whole), square_weights),
        ("Q4", "output-projection-missing", Wish(shapes=separate, features=("wo", "square-out"))),
        (
            "Q4",
            "output-projection-extra",
            Wish(shapes=separate, features=("wo", "square-out", "output-extra"), stage="merged"),
        ),
        (
            "Q4",
            "bias-missing",
            Wish(shapes=(*separate, *MINI), features=(*whole, "biases")),
            missing_bias,
        ),
        ("Q4", "activation", Wish(shapes=separate, features=whole), one_of("of", "o", "v", "qkv")),
    ]


def rotary_items():
    turned = dict(
        shapes=("probe", "square", "gqa", "cross", "smollm2-layer11", "smollm2-layer11"),
        features=("rotary",),
    )
    return [
        ("R1", "", Wish(**turned)),
        ("R2", "", Wish(**turned)),
        ("R3", "base", Wish(**turned), base),
        ("R3", "key-shift", Wish(**turned), one_of("shift", -1, 1, 2, 5)),
        ("R3", "query-shift", Wish(**turned), one_of("shift", -1, 1, 2, 5)),
        ("R3", "chunk-reset", Wish(**turned), chunk),
    ]


def extra_items():
    return [
        ("E1", "sink-missing", Wish(features=("sink",))),
        ("E1", "softcap-missing", Wish(features=("softcap",))),
        ("E1", "softcap-after-mask", Wish(features=("softcap",), some_part=True)),
        ("E1", "qk-norm-missing", Wish(features=("qk-norm",))),
        ("E1", "alibi-sign", Wish(features=("alibi",))),
        ("E1", "alibi-slope-from-zero", Wish(features=("alibi",))),
        ("E1", "alibi-slope-one-for-all", Wish(features=("alibi",))),
        ("E1", "alibi-corner", Wish(shapes=APART, features=("alibi",)), other_offset),
        ("E1", "bias-scaled", Wish(features=("bias",))),
        ("E1", "v-scaled", Wish(), lambda rng, case: {"factor": case.true_scale}),
    ]


def gradient_items():
    any_shape = dict(
        shapes=("probe", "square", "gqa", "cross", *MINI, *MINI),
        features=("plain",),
        carries=("gradients",),
    )
    grouped = dict(shapes=("probe", "gqa", "mqa"), features=("plain",), carries=("gradients",))
    return [
        ("G2", "first-head", Wish(**grouped)),
        ("G2", "last-head", Wish(**grouped)),
        *[
            ("B1", v, Wish(**any_shape))
            for v in ("row-sum-missing", "scale-missing", "stale-sample", "stale-head")
        ],
    ]


INJECTIONS = make()
IDS = list(dict.fromkeys(i.id for i in INJECTIONS))

# Who is to be taken for whom: within a family a dump is held against every other member.
FAMILIES = [
    {"M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M12", "M13"},
    {"S1", "S2", "S3", "S4", "N2", "N1", "E1"},
    {"H1", "H2", "H3", "H4", "H5", "G1"},
    {"Q1", "Q2", "Q3", "Q4"},
    {"R1", "R2", "R3"},
    {"G2", "B1"},
    {"X1", "X2"},
]


def family(identifier):
    return next((f for f in FAMILIES if identifier in f), {identifier})
