"""What a dump shows of a case, and how far apart two of them are in units of rounding."""

import copy

import torch

from attention import run
from case import DTYPES, NO_BUGS
from gradients import backward


def observed(case, bugs=NO_BUGS, dtype=None, style=None, seed=0):
    """The results that the dump carries, by name."""
    result = run(case, bugs, dtype, style, seed)
    shown = {"out": result.out}
    if "heads" in case.carries:
        shown |= {"q": result.q, "k": result.k, "v": result.v}
    if "weights" in case.carries:
        shown["weights"] = result.weights
    if "lse" in case.carries:
        shown["lse"] = result.lse
    if "out2" in case.carries:
        shown["out2"] = run(case, bugs, dtype, style, seed + 1).out
    if "gradients" in case.carries:
        shown |= zip(("dq", "dk", "dv"), backward(case, bugs, dtype, style), strict=True)
    return shown


def read(case, name, t):
    """Rows that somebody reads: a policy of "any" or read_rows leaves some out."""
    t = t.double()
    if name not in ("out", "out2") or (case.read_rows is None and case.empty_row_as != "any"):
        return t
    rows = case.read_rows if case.read_rows is not None else case.padding
    return t[rows] if t.dim() == 3 else t.transpose(1, 2)[rows]


def distance(a, b):
    """Root mean square and largest difference; infinite where only one is finite."""
    if a.numel() == 0:
        return 0.0, 0.0
    same = (a == b) | (a.isnan() & b.isnan())
    delta = torch.where(same, 0.0, a - b)
    if not delta.isfinite().all():
        return float("inf"), float("inf")
    return float(delta.square().mean().sqrt()), float(delta.abs().max())


def scaled_first(case):
    """The same numbers with the scale put on q, so that no product is larger than its score."""
    scaled = copy.copy(case)
    scaled.q = case.q * case.true_scale
    scaled.scale = 1.0
    return scaled


class Rounding:
    """What the dtype itself makes of the case: the largest of three styles, at least half a unit."""

    def __init__(self, case):
        self.case = case
        self.exact = observed(case, dtype="float64")
        self.noise = {name: (0.0, 0.0) for name in self.exact}
        self.right = observed(case)
        styles = [self.right]
        if case.dtype in ("bfloat16", "float16"):
            styles.append(observed(case, style="eager" if case.style == "fused" else "fused"))
            if case.q is not None and case.qk_norm is None:
                styles.append(observed(scaled_first(case), style="eager"))
        epsilon = torch.finfo(DTYPES[case.dtype]).eps
        for name, exact in self.exact.items():
            exact = read(case, name, exact)
            size = exact[exact.isfinite()]
            size = float(size.abs().max()) if size.numel() else 0.0
            measured = [distance(read(case, name, s[name]), exact) for s in styles]
            measured = [m for m in measured if m[0] < float("inf")]
            floor = (0.1 * epsilon * size + 1e-300, 0.5 * epsilon * size + 1e-300)
            self.noise[name] = tuple(max(p) for p in zip(*measured, floor, strict=True))

    def ratio(self, a, b):
        """Root mean square and largest difference in units of the noise; the worst name counts."""
        pairs = []
        for name in a:
            apart = distance(read(self.case, name, a[name]), read(self.case, name, b[name]))
            pairs.append([d / n for d, n in zip(apart, self.noise[name], strict=True)])
        return max(p[0] for p in pairs), max(p[1] for p in pairs)

    def shows(self, wrong, right=None):
        """True: clearly more than rounding; False: not more; None: between."""
        mean, largest = self.ratio(wrong, right or self.right)
        if mean > 4 or largest > 10:
            return True
        return False if mean < 1.6 and largest < 2.5 else None

    def same(self, a, b):
        """Equal but for rounding; a and b in float64."""
        mean, largest = self.ratio(a, b)
        return mean < 1 and largest < 2
