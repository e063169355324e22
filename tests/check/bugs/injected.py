"""Dumps with one mistake or two."""

from itertools import combinations

import numpy as np

from aliases import SHAPE_ERRORS, aliases, same_shapes
from case import Bugs
from catalogue import INJECTIONS, family
from draw import MODIFIERS, Wish, draw
from observe import Rounding, observed


def single_dumps(seed, count, classes, dtypes):
    for identifier in classes:
        injections = [i for i in INJECTIONS if i.id == identifier]
        for number in range(count):
            rng = np.random.default_rng([seed, number, *identifier.encode()])
            injection = injections[number % len(injections)]
            turn = number % len(injections) + number // len(
                injections
            )  # every variant meets every dtype
            hidden = (number + seed) % 16 == 15
            made = one_dump(rng, [injection], turn, dtypes, hidden)
            if made:
                yield made


def one_dump(rng, injections, turn, dtypes, hidden=False):
    """Tries until the mistake shows, or does not where `hidden` asks for that."""
    wish = injections[0].wish if len(injections) == 1 else both(*[i.wish for i in injections])
    usable = [d for d in dtypes if wish and d in wish.dtypes]
    if not usable:
        return None
    for attempt in range(60):
        dtype = usable[turn % len(usable)]
        shapes = wish.shapes if not hidden else (*wish.shapes, "tiny", "tiny", "tiny")
        shape = shapes[int(rng.integers(len(shapes)))]
        case = draw(rng, wish, dtype, shape)
        if case is None:
            continue
        bugs = [i.bug(rng, case) for i in injections]
        if not all(bugs):
            continue
        made = dump_of(rng, case, bugs)
        shows = made["record"]["shows"] if made else None
        if shows is (attempt > 30 or not hidden) or (shows is False and attempt > 50):
            return made
    return None


def dump_of(rng, case, bugs):
    seed = int(rng.integers(1 << 30))
    if case.projections and rng.random() < 0.25:
        case.carries = case.carries | {"heads"}
    try:
        shown = observed(case, Bugs(*bugs), seed=seed)
    except SHAPE_ERRORS:
        return None
    rounding = Rounding(case)
    if not same_shapes(shown, rounding.right):
        return None
    if len(bugs) == 2 and not shown["out"].isfinite().any():
        return None  # nothing but NaN tells no two mistakes apart
    shows = rounding.shows(shown)
    hidden = hidden_halves(case, bugs, rounding, shown, seed)
    if hidden is None:
        return None
    record = {
        "ids": [b.id for b in bugs],
        "variants": [b.variant for b in bugs],
        "parameters": [b.parameters for b in bugs],
        "aliases": aliases(rng, case, bugs, rounding, seed, hidden) if shows else [],
        "shows": shows,
    }
    return {"case": case, "shown": shown, "record": record}


def hidden_halves(case, bugs, rounding, shown, seed):
    """Of a pair the halves that the other one covers up; None where it almost does."""
    hidden = []
    for bug in bugs if len(bugs) == 2 else []:
        (other,) = (b for b in bugs if b is not bug)
        alone = observed(case, Bugs(other), seed=seed)
        shows = rounding.shows(shown, alone) if same_shapes(shown, alone) else True
        if shows is None:
            return None
        hidden += [] if shows else [bug.id]
    return hidden


def pair_dumps(seed, count, classes, dtypes):
    """Pairs of classes that compose, each pair in turn until there are enough."""
    usable = [i for i in INJECTIONS if i.id in classes]
    pairs = {}
    for a, b in combinations(usable, 2):
        if (
            family(a.id) is not family(b.id)
            and not {"G2", "B1", "D1", "N3"} & {a.id, b.id}
            and both(a.wish, b.wish)
        ):
            pairs.setdefault((a.id, b.id), []).append((a, b))
    order = sorted(pairs)
    np.random.default_rng([seed, 1]).shuffle(order)
    made, turn = 0, 0
    while made < count and turn < 8 * count:
        ids = tuple(order[turn % len(order)])
        rng = np.random.default_rng([seed, turn, 1])
        choices = pairs[ids]
        dump = one_dump(rng, choices[int(rng.integers(len(choices)))], turn, dtypes)
        turn += 1
        if dump and dump["record"]["shows"]:
            made += 1
            yield dump


def both(a, b):
    """A wish for both, or None where they exclude each other."""

    def either(x, y):
        return x if y is None else y

    shapes = tuple(s for s in a.shapes if s in b.shapes)
    features = tuple(dict.fromkeys((*a.features, *b.features)))
    parts = tuple(dict.fromkeys((*a.parts, *b.parts)))
    only = either(a.only, b.only)
    clash = any(
        x is not None and y is not None and x != y
        for x, y in (
            (a.policy, b.policy),
            (a.layout, b.layout),
            (a.stage, b.stage),
            (a.style, b.style),
        )
    )
    if (
        not shapes
        or clash
        or ("plain" in features and set(features) & {*MODIFIERS, "projections", "wo"})
    ):
        return None
    if only is not None and (
        not set(parts) <= set(only) or (not only and (a.some_part or b.some_part))
    ):
        return None
    if ("projections" in features or "wo" in features) and (
        a.layout or b.layout or "merged" in (a.stage, b.stage)
    ):
        return None
    return Wish(
        shapes=shapes,
        parts=parts,
        some_part=a.some_part or b.some_part,
        only=only,
        features=features,
        stage=either(a.stage, b.stage),
        layout=either(a.layout, b.layout),
        empty_rows=a.empty_rows or b.empty_rows,
        policy=either(a.policy, b.policy),
        gain=max(a.gain, b.gain),
        dtypes=tuple(d for d in a.dtypes if d in b.dtypes),
        style=either(a.style, b.style),
        carries=(*a.carries, *b.carries),
    )
