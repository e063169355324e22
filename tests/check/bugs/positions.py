"""RMS norm and rotary positions of q and k, right and wrong."""

import torch


def rms_norm(x, weight, epsilon):
    y = x if x.dtype == torch.float64 else x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + epsilon)
    return y.to(x.dtype) * weight.to(x.dtype)


def turn(x, angles, pairing):
    """x [...,width] turned by angles [...,width/2]."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if pairing == "interleaved":
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotary(x, positions, options, bugs):
    """x [B,heads,length,Dk], positions [B,length]."""
    base, pairing = options.base, options.pairing
    if bugs("R1"):
        pairing = "halves" if pairing == "interleaved" else "interleaved"
    if bugs("R3", "base"):
        base = bugs("R3").parameters["base"]
    if bugs("R3", "chunk-reset"):
        positions = positions % bugs("R3").parameters["chunk"]
    exponents = torch.arange(0, options.width, 2, dtype=torch.float64) / options.width
    frequencies = base**-exponents
    if bugs("R2"):
        # The table is indexed along axis 1, which holds heads here.
        angles = (torch.arange(x.shape[1])[:, None] * frequencies)[None, :, None, :]
    else:
        angles = (positions[:, :, None] * frequencies)[:, None]
    turned = turn(x[..., : options.width], angles, pairing)
    return torch.cat((turned, x[..., options.width :]), dim=-1)


def place(q, k, case, bugs):
    """q and k as they enter the scores."""
    norm = case.qk_norm if not bugs("E1", "qk-norm-missing") else None
    if norm and norm.order == "before-rotary":
        q = rms_norm(q, norm.query_weight, norm.epsilon)
        k = rms_norm(k, norm.key_weight, norm.epsilon)
    if case.rotary:
        query_positions, key_positions = case.rotary.query_positions, case.rotary.key_positions
        if bugs("R3", "key-shift"):
            key_positions = key_positions + bugs("R3").parameters["shift"]
        if bugs("R3", "query-shift"):
            query_positions = query_positions + bugs("R3").parameters["shift"]
        q = rotary(q, query_positions, case.rotary, bugs)
        k = rotary(k, key_positions, case.rotary, bugs)
    if norm and norm.order == "after-rotary":
        q = rms_norm(q, norm.query_weight, norm.epsilon)
        k = rms_norm(k, norm.key_weight, norm.epsilon)
    return q, k
