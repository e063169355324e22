"""Which key a query sees, right and wrong."""

import torch


def query_key_positions(case, offset):
    """Key positions of the queries [T,1] and of the keys [1,S]."""
    return torch.arange(case.T)[:, None] + offset, torch.arange(case.S)[None, :]


def causal_part(case, bugs, offset):
    query, key = query_key_positions(case, offset)
    if bugs("M8", "diagonal"):
        keep = key < query
    elif bugs("M8", "triangle"):
        keep = key >= query
    else:
        keep = key <= query
    keep = keep[None, None]
    drops_prefix = bugs("M7") and bugs("M7").parameters["part"] == "prefix"
    if case.prefix is not None and not drops_prefix:
        keep = keep | (key[None] < case.prefix[:, None, None])[:, None]
    return keep


def window_part(case, bugs, offset):
    query, key = query_key_positions(case, offset)
    left, right = case.window
    if bugs("M9", "wider"):
        left = left + 1
    elif bugs("M9", "narrower"):
        left = left - 1
    elif bugs("M9", "two-sided"):
        right = left
    elif bugs("M9", "other-side"):
        left, right = 0 if right is None else right, left
    keep = torch.ones(case.T, case.S, dtype=torch.bool)
    if left is not None:
        keep &= key >= query - left
    if right is not None:
        keep &= key <= query + right
    return keep[None, None]


def padding_part(case, bugs):
    keep = case.padding
    if bugs("M2"):
        return keep[:, None, :, None]  # [B,1,T,1] where [B,1,1,S] was meant
    if bugs("M13"):
        return keep[:, :, None, None]  # [B,T,1,1]
    return of_sample(keep[:, None, None, :], case, bugs)


def of_sample(keep, case, bugs):
    """keep [B,1,·,S] on every head; M11 takes it from somewhere else."""
    if keep.shape[0] == 1:
        return keep
    if bugs("M11", "first-sample"):
        return keep[:1]
    if bugs("M11", "tiled"):
        # For scores [B·H,T,S]; repeat_interleave was meant.
        return keep[:, 0].repeat(case.H, 1, 1).view(case.B, case.H, *keep.shape[2:])
    if bugs("M11", "onto-heads"):
        return keep[:, 0]  # [B,·,S] on [B,H,T,S]: runs where B = H
    return keep


def visible_parts(case, bugs):
    """One boolean tensor a rule, true: takes part; they broadcast to [B,H,T,S]."""
    offset = case.offset
    if bugs("M10"):
        offset = bugs("M10").parameters["offset"]
    parts = {}
    if case.causal:
        parts["causal"] = causal_part(case, bugs, offset)
    if case.window is not None:
        parts["window"] = window_part(case, bugs, offset)
    if case.padding is not None:
        parts["padding"] = padding_part(case, bugs)
    if case.query_documents is not None and not bugs("M12"):
        same = case.query_documents[:, :, None] == case.key_documents[:, None, :]
        parts["documents"] = of_sample(same[:, None], case, bugs)
    if case.mask is not None:
        mask = case.mask
        parts["mask"] = of_sample(mask, case, bugs) if mask.shape[1] == 1 else mask

    if bugs("M7"):
        dropped = bugs("M7").parameters["part"]
        parts = {} if dropped == "all" else {n: p for n, p in parts.items() if n != dropped}
    if bugs("M1"):
        inverted = bugs("M1").parameters["part"]
        if inverted == "all":
            parts = {"all": ~everything(parts, case)}
        else:
            parts[inverted] = ~parts[inverted]
    return parts


def everything(parts, case):
    keep = torch.ones(1, 1, case.T, case.S, dtype=torch.bool)
    for part in parts.values():
        keep = keep & part
    return keep


def sees_a_key(case, bugs):
    """[B,H,T,1]: rows with something to see."""
    keep = everything(visible_parts(case, bugs), case)
    return keep.any(-1, keepdim=True).expand(case.B, case.H, case.T, 1)
