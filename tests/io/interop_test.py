"""Reads with NumPy and safetensors what write_samples wrote."""

import os
import subprocess
import zipfile

import numpy as np
import pytest
import safetensors

SHAPES = {"scalar": (), "vector": (5,), "empty": (2, 0, 3), "rank 4": (2, 3, 1, 2)}
NUMPY_TYPES = (
    "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split()
)
SAFETENSORS_TYPES = dict(
    zip(NUMPY_TYPES, "F64 F32 F16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL".split()), bfloat16="BF16"
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    directory = tmp_path_factory.mktemp("samples")
    subprocess.run([os.environ["QKV_WRITE_SAMPLES"], directory], check=True)
    return directory


def expected(dtype, shape):
    index = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if dtype == "bool":
        return index % 3 == 0
    if dtype.startswith("uint"):
        return index
    return index - 3 if dtype.startswith("int") else (index - 3) / 2


def check_arrays(arrays, names):
    assert sorted(arrays) == sorted(names)
    for name in names:
        dtype, shape_name = name.split("/")
        array = arrays[name]
        assert array.dtype == ("float32" if dtype == "bfloat16" else dtype), name
        assert array.shape == SHAPES[shape_name], name
        np.testing.assert_array_equal(array, expected(dtype, array.shape), err_msg=name)


def names_of(dtypes):
    return [f"{dtype}/{shape}" for dtype in dtypes for shape in SHAPES]


def test_numpy_reads_npz(samples):
    with np.load(samples / "samples.npz", allow_pickle=False) as file:
        check_arrays(dict(file), names_of(NUMPY_TYPES))


def test_zipfile_finds_no_fault_in_npz(samples):
    with zipfile.ZipFile(samples / "samples.npz") as file:
        assert file.testzip() is None
        assert {member.compress_type for member in file.infolist()} == {zipfile.ZIP_STORED}


def test_numpy_reads_npy(samples):
    array = np.load(samples / "sample.npy", allow_pickle=False)
    assert array.dtype == "float32" and array.flags.c_contiguous
    np.testing.assert_array_equal(array, expected("float32", (2, 3, 1, 2)))
    mapped = np.load(samples / "sample.npy", mmap_mode="r")
    assert mapped.offset % 64 == 0


def test_safetensors_reads_safetensors(samples):
    arrays = {}
    for name, tensor in safetensors.deserialize((samples / "samples.safetensors").read_bytes()):
        dtype, _ = name.split("/")
        assert tensor["dtype"] == SAFETENSORS_TYPES[dtype], name
        if dtype == "bfloat16":  # the upper half of a float32
            halves = np.frombuffer(tensor["data"], "uint16").astype("uint32")
            array = (halves << 16).view("float32")
        else:
            array = np.frombuffer(tensor["data"], dtype)
        arrays[name] = array.reshape(tensor["shape"])
    check_arrays(arrays, names_of(SAFETENSORS_TYPES))


def test_safetensors_reads_metadata(samples):
    with safetensors.safe_open(samples / "samples.safetensors", framework="numpy") as file:
        assert file.metadata() == {"language": "中文", "quoted": '"\\\n'}
