"""What else explains a dump with known mistakes: what recomputation finds to give the same numbers, and
what the catalogue says cannot be told apart."""

import copy

import torch

from attention import run
from case import Bugs
from catalogue import INJECTIONS, family
from observe import observed
from visibility import sees_a_key

IN_ITS_DTYPE = {"M5", "N3"}  # what float64 cannot show
SHAPE_ERRORS = (RuntimeError, IndexError)  # an injection that would not run on these sizes


def same_shapes(a, b):
    return all(a[name].shape == b[name].shape for name in b)


def aliases(rng, case, bugs, rounding, seed, hidden=()):
    """Ids of other mistakes, or pairs of them. `hidden`: halves of a pair that do not show."""
    truth = sorted(b.id for b in bugs)
    found = [[b.id for b in bugs if b.id != identifier] for identifier in hidden]
    dtype = case.dtype if IN_ITS_DTYPE & set(truth) else "float64"
    wrong = observed(case, Bugs(*bugs), dtype=dtype, seed=seed)
    for explanation in tries(rng, case, bugs):
        ids = sorted(b.id for b in explanation)
        if ids in found or ids == truth:
            continue
        try:
            other = observed(case, Bugs(*explanation), dtype=dtype, seed=seed)
        except SHAPE_ERRORS:
            continue
        if same_shapes(other, wrong) and rounding.same(wrong, other):
            found.append(ids)
    for ids in [truth, *found]:
        for other in exchanged(case, bugs, ids):
            if other not in found and other != truth:
                found.append(other)
    return found


def tries(rng, case, bugs):
    others = [rivals(rng, case, bug) for bug in bugs]
    if len(bugs) == 1:
        return [[rival] for rival in others[0]]
    first, second = bugs
    alone = [[bug] for bug in (*bugs, *others[0], *others[1])]
    beside_second = [[rival, second] for rival in others[0] if rival.id != second.id]
    beside_first = [[first, rival] for rival in others[1] if rival.id != first.id]
    return alone + beside_second + beside_first


def rivals(rng, case, bug):
    """Members of the family that can be written for this case, parameters drawn so often that every value is there."""
    few_scores = case.T * case.S <= 9
    found = []
    for injection in INJECTIONS:
        related = few_scores or injection.id in family(bug.id)
        if injection.id == bug.id or not related or not writable(injection, case):
            continue
        for _ in range(32):
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


def exchanged(case, bugs, ids):
    """The catalogue's equals: a fitted constant, separate weights, a sink for a tail, empty rows."""
    equals = {"S1": "S3", "S2": "S3", "N1": "E1"}
    if "lse" not in case.carries:
        equals["N2"] = "S3"
    if case.projections and not case.projections.packing:
        equals |= {"Q1": "Q2", "Q2": "Q1"}
    if {"M5", "M6"} & set(ids) and changes_empty_rows_alone(case, bugs):
        equals |= {"M5": "M6", "M6": "M5"}
    found = []
    for identifier in ids:
        if identifier in equals:
            rest = [i for i in ids if i != identifier]
            found.append(sorted({*rest, equals[identifier]}))
    return found


def changes_empty_rows_alone(case, bugs):
    """Whether M5 or M6 leaves every row as it is that sees a key."""
    core = copy.copy(case)
    core.stage = "heads"
    others = Bugs(*(b for b in bugs if b.id not in ("M5", "M6")))
    with_it, without = (run(core, b, case.dtype).out for b in (Bugs(*bugs), others))
    rows = sees_a_key(case, Bugs(*bugs)).expand_as(with_it)
    return bool(torch.equal(with_it[rows].nan_to_num(), without[rows].nan_to_num()))
