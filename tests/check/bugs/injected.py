"""Dumps with one mistake or two, and what else would explain each of them."""

from itertools import combinations

import numpy as np

from attention import heads
from case import DTYPES, Bugs
from catalogue import INJECTIONS, family
from draw import MODIFIERS, Wish, draw
from observe import Rounding, observed

IN_ITS_DTYPE = {"M5", "N3"}  # what float64 cannot show
SHAPE_ERRORS = (RuntimeError, IndexError)  # an injection that would not run on these sizes


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
    try:
        shown = observed(case, Bugs(*bugs), seed=seed)
    except SHAPE_ERRORS:
        return None
    rounding = Rounding(case)
    if not same_shapes(shown, rounding.right):
        return None
    shows = rounding.shows(shown)
    record = {
        "ids": [b.id for b in bugs],
        "variants": [b.variant for b in bugs],
        "parameters": [b.parameters for b in bugs],
        "aliases": aliases(rng, case, bugs, rounding, seed) if shows else [],
        "shows": shows,
    }
    made = {"case": case, "shown": shown, "record": record}
    if case.projections and rng.random() < 0.25:
        made["heads"] = heads(case, Bugs(*bugs), DTYPES[case.dtype])
        record["heads"] = "as the code had them"  # beside x and weights
    return made


def same_shapes(a, b):
    return all(a[name].shape == b[name].shape for name in b)


def aliases(rng, case, bugs, rounding, seed):
    """Other mistakes, or pairs of them, that give the same numbers in this dump."""
    dtype = case.dtype if IN_ITS_DTYPE & {b.id for b in bugs} else "float64"
    wrong = observed(case, Bugs(*bugs), dtype=dtype, seed=seed)
    tries = [[rival] for bug in bugs for rival in rivals(rng, case, bug)]
    if len(bugs) == 2:
        first, second = bugs
        tries = [[first], [second]]
        tries += [[rival, second] for rival in rivals(rng, case, first) if rival.id != second.id]
        tries += [[first, rival] for rival in rivals(rng, case, second) if rival.id != first.id]
    found = []
    for explanation in tries:
        ids = sorted(b.id for b in explanation)
        if ids in found or ids == sorted(b.id for b in bugs):
            continue
        try:
            other = observed(case, Bugs(*explanation), dtype=dtype, seed=seed)
        except SHAPE_ERRORS:
            continue
        if same_shapes(other, wrong) and rounding.same(wrong, other):
            found.append(ids)
    return found + [ids for ids in known_aliases(case, bugs) if ids not in found]


def rivals(rng, case, bug):
    """Members of the family that can be written for this case, parameters drawn a few times."""
    few_scores = case.T * case.S <= 9
    found = []
    for injection in INJECTIONS:
        related = few_scores or injection.id in family(bug.id)
        if injection.id == bug.id or not related or not writable(injection, case):
            continue
        for _ in range(8):
            rival = injection.bug(rng, case)
            if rival and rival not in found:
                found.append(rival)
    return found


def writable(injection, case):
    """Whether the case has what the injection is about."""
    wish = injection.wish
    if not set(wish.parts) <= set(case.parts) or (wish.some_part and not case.parts):
        return False
    if (wish.only is not None and list(wish.only) != case.parts) or not set(
        wish.carries
    ) <= case.carries:
        return False
    have = {
        "scale": True,
        "softcap": case.softcap,
        "bias": case.bias is not None,
        "alibi": case.alibi_slopes is not None,
        "sink": case.sink is not None,
        "rotary": case.rotary,
        "qk-norm": case.qk_norm,
        "projections": case.projections,
        "wo": case.wo is not None,
    }
    if injection.id == "M6" and injection.wish.policy != case.empty_row:
        return False
    if injection.id == "M12" and case.query_documents is None:
        return False
    return all(have.get(feature, True) for feature in wish.features)


def known_aliases(case, bugs):
    """What the catalogue says of a fitted constant, separate weights, and a sink for a tail."""
    if len(bugs) != 1:
        return []
    bug = bugs[0]
    if bug.id in ("S1", "S2") or (bug.id == "N2" and "lse" not in case.carries):
        return [["S3"]]
    if bug.id == "N1":
        return [["E1"]]
    if bug.id == "Q1" and not case.projections.packing:
        return [["Q2"]]
    return []


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
