"""Writes the files beside it, with NumPy, safetensors, PyTorch and ml_dtypes.

Element k, in row-major order, of every tensor is k - 3 where the type is signed, k where it is unsigned,
(k - 3) / 2 where it is a float, and k % 3 == 0 where it is bool.
"""

import pathlib

import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent
NUMPY_TYPES = "f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1".split()
TORCH_TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
]  # fmt: skip


def values(shape, dtype):
    index = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(index % 3 == 0)
    if kind == "u":
        return np.asarray(index, dtype)
    return np.asarray(index - 3 if kind == "i" else (index - 3) / 2, dtype)


def save_npy(name, array, version=None):
    with open(HERE / name, "wb") as file:
        np.lib.format.write_array(file, array, version=version)


def main():
    arrays = {name: values((2, 3), name) for name in NUMPY_TYPES}
    arrays["scalar"] = values((), "f4")
    arrays["empty"] = values((2, 0, 3), "f4")
    arrays["group/fortran"] = np.asfortranarray(values((2, 3, 4), "f8"))
    np.savez(HERE / "numpy_stored.npz", **arrays)
    np.savez_compressed(HERE / "numpy_deflated.npz", **arrays)
    np.savez(HERE / "numpy_nothing.npz")

    save_npy("numpy_f8_fortran.npy", np.asfortranarray(values((2, 3, 4), "f8")))
    save_npy("numpy_f4_big_endian.npy", values((3, 4), ">f4"))
    save_npy("numpy_i2_big_endian_fortran.npy", np.asfortranarray(values((3, 2), ">i2")))
    save_npy("numpy_f2_scalar.npy", values((), "f2"))
    save_npy("numpy_b1.npy", values((5,), "b1"))
    save_npy("numpy_u4_version_2.npy", values((7,), "u4"), version=(2, 0))
    save_npy("numpy_f4_version_3.npy", values((2, 2), "f4"), version=(3, 0))
    save_npy("numpy_i8_empty.npy", values((3, 0), "i8"))
    save_npy("ml_dtypes_bfloat16.npy", values((2, 3), "f4").astype(ml_dtypes.bfloat16))
    save_npy("numpy_object.npy", np.array([None, 1], dtype=object))
    save_npy("numpy_structured.npy", np.zeros(2, dtype=[("x", "f4"), ("y", "f4")]))
    save_npy("numpy_void.npy", np.zeros(2, dtype="V2"))
    save_npy("numpy_complex.npy", np.zeros(2, dtype="c8"))

    plain = {name: values((2, 3), name) for name in NUMPY_TYPES}
    safetensors.numpy.save_file(plain, HERE / "numpy.safetensors", metadata={"made by": "safetensors"})

    tensors = {}
    for dtype in TORCH_TYPES:
        name = str(dtype).removeprefix("torch.")
        kind = "b1" if dtype == torch.bool else "u8" if name.startswith("u") else "i8"
        kind = "f8" if dtype.is_floating_point else kind
        tensors[name] = torch.from_numpy(values((2, 3), kind)).to(dtype)
    tensors["scalar"] = torch.from_numpy(values((), "f4"))
    tensors["empty"] = torch.zeros((2, 0, 3), dtype=torch.bfloat16)
    tensors["rank4"] = torch.from_numpy(values((2, 1, 3, 2), "f4"))
    safetensors.torch.save_file(tensors, HERE / "torch.safetensors")
    torch.save({"weight": torch.ones(2)}, HERE / "torch_pickle.pt")
    safetensors.torch.save_file(
        {"weight": torch.ones(2).to(torch.float8_e4m3fn)}, HERE / "torch_float8.safetensors"
    )


if __name__ == "__main__":
    main()
