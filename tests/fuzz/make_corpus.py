"""Writes the seeds ok-* and bad-* of the fuzz targets into corpus/."""

import io
import json
import math
import pathlib
import struct
import zipfile

import numpy as np

CORPUS = pathlib.Path(__file__).parent / "corpus"
SIZES = dict(F64=8, F32=4, F16=2, BF16=2, I64=8, I32=4, I16=2, I8=1, U64=8, U32=4, U16=2, U8=1, BOOL=1)


def entry(name, dtype, shape, begin, end):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def safetensors(header, data=b""):
    return struct.pack("<Q", len(header.encode())) + header.encode() + data


def one(fields, data=bytes(8)):
    return safetensors('{"w":{' + fields + "}}", data)


def safetensors_seeds():
    entries, offset = [], 0
    for dtype, size in SIZES.items():
        entries.append(entry(dtype, dtype, [2, 1], offset, offset + 2 * size))
        offset += 2 * size
    yield "ok-dtypes", safetensors("{" + ",".join(entries) + "}", bytes(k % 2 for k in range(offset)))
    ranks = [entry(f"r{rank}", "U8", [1] * rank, rank, rank + 1) for rank in range(7)]
    yield "ok-ranks", safetensors("{" + ",".join(ranks) + "}", bytes(range(7)))
    yield "ok-empty", safetensors("{" + entry("e", "F32", [2, 0], 0, 0) + "}")
    yield "ok-nothing", safetensors("{}      ")
    yield "ok-metadata", safetensors('{"__metadata__":{"k":"v","\\u00e9\\"\\\\":"测"}}')

    good = '"dtype":"F32","shape":[2],"data_offsets":[0,8]'
    yield "bad-short", b"abc"
    yield "bad-length", struct.pack("<Q", 1 << 63) + b"{}"
    yield "bad-no-header", safetensors("")
    yield "bad-list", safetensors("[]")
    yield "bad-open", safetensors('{"w":{"dtype":"F3')
    yield "bad-zero", safetensors("{}\0")
    yield "bad-utf8", struct.pack("<Q", 7) + b'{"\xff":1}'
    yield "bad-nested", safetensors('{"w":' + "[" * 40)
    yield "bad-null", safetensors('{"w":null}')
    yield "bad-true", safetensors('{"w":true}')
    yield "bad-false", safetensors('{"w":false}')
    yield "bad-text", safetensors('{"w":"x"}')
    yield "bad-twice", safetensors("{" + entry("a", "U8", [1], 0, 1) + "," + entry("\\u0061", "U8", [1], 1, 2) + "}", b"xy")
    yield "bad-field", one(good + ',"x\\"\\\\":1')
    yield "bad-field-twice", one(good + ',"dtype":"F32"')
    yield "bad-no-shape", one('"dtype":"F32","data_offsets":[0,8]')
    yield "bad-dtype", one('"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]')
    yield "bad-dtype-object", one('"dtype":{}')
    yield "bad-shape-text", one('"dtype":"F32","shape":"2"')
    yield "bad-negative", one('"dtype":"F32","shape":[-2],"data_offsets":[0,8]')
    yield "bad-fraction", one('"dtype":"F32","shape":[2.5],"data_offsets":[0,8]')
    yield "bad-extent-2-63", one('"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]')
    yield "bad-range-2-63", one('"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775808]')
    yield "bad-digits", one('"dtype":"F32","shape":[' + "9" * 50 + '],"data_offsets":[0,8]')
    yield "bad-huge", one('"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]')
    yield "bad-axes", one('"dtype":"U8","shape":[' + "1," * 64 + '8],"data_offsets":[0,8]')
    yield "bad-range-of-one", one('"dtype":"F32","shape":[2],"data_offsets":[8]')
    yield "bad-range-of-three", one('"dtype":"F32","shape":[2],"data_offsets":[0,8,9]')
    yield "bad-range-text", one('"dtype":"F32","shape":[2],"data_offsets":"0"')
    yield "bad-range-backwards", one('"dtype":"F32","shape":[2],"data_offsets":[8,0]')
    yield "bad-range-outside", one('"dtype":"F32","shape":[2],"data_offsets":[4,12]')
    yield "bad-range-size", one('"dtype":"F32","shape":[2],"data_offsets":[0,4]')
    yield "bad-overlap", safetensors("{" + entry("a", "U8", [4], 0, 4) + "," + entry("b", "U8", [4], 2, 6) + "}", bytes(6))
    yield "bad-gap", safetensors("{" + entry("a", "U8", [4], 0, 4) + "," + entry("b", "U8", [1], 5, 6) + "}", bytes(6))
    yield "bad-tail", safetensors("{" + entry("a", "U8", [4], 0, 4) + "}", bytes(6))
    yield "bad-bool", safetensors("{" + entry("a", "BOOL", [2], 0, 2) + "}", b"\1\2")
    yield "bad-metadata", safetensors('{"__metadata__":[]}')
    yield "bad-metadata-number", safetensors('{"__metadata__":{"k":1}}')
    yield "bad-metadata-twice", safetensors('{"__metadata__":{"k":"","k":""}}')
    yield "bad-name", safetensors('{"\\u001b' + "n" * 90 + '":1}')


def npy(dict_text, data=b"", version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(dict_text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + dict_text.encode() + data


def described(descr, shape, data=b"", order=False, version=1):
    return npy(f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n", data, version)


def archive(*members, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name), content, compression)
    return stream.getvalue()


def npy_seeds():
    for descr in "<f8 >f4 =f2 <V2 >V2 <i8 >i4 <i2 |i1 <u8 <u4 >u2 |u1 |b1".split():
        name = descr[1:] + {"<": "-little", ">": "-big", "=": "-native", "|": ""}[descr[0]]
        yield f"ok-{name}", described(descr, "(2,)", bytes(2 * int(descr[2:])))
    data = np.arange(24, dtype="<u2").tobytes()
    yield "ok-fortran", described("<u2", "(2, 3, 4)", data, order=True)
    yield "ok-fortran-big", described(">u2", "(2, 3, 4)", data, order=True)
    yield "ok-scalar", described("<f4", "()", bytes(4))
    yield "ok-empty", described("<f4", "(1000000000000, 0, 3)", order=True)
    yield "ok-rank-7", described("|u1", "(1, 1, 1, 1, 1, 1, 1)", b"x", order=True)
    yield "ok-fortran-vector", described("<u2", "(24,)", data, order=True)
    yield "ok-version-2", described("<f4", "(2,)", bytes(8), version=2)
    yield "ok-version-3", npy('{"shape":(2,),"descr":"<f4","fortran_order":False}', bytes(8), version=3)

    yield "bad-nothing", b""
    yield "bad-text", b"hello"
    yield "bad-bytes", b"\xff\xfe\x7f"
    yield "bad-safetensors", safetensors("{}", b"x")
    yield "bad-version-0", b"\x93NUMPY\0\0\0\0"
    yield "bad-no-version", b"\x93NUMPY\1"
    yield "bad-version", b"\x93NUMPY\1\1\0\0"
    yield "bad-no-length", b"\x93NUMPY\2\0\1\0"
    yield "bad-length", b"\x93NUMPY\2\0\xff\xff\xff\xff{}"
    yield "bad-unclosed", npy("{'descr")
    yield "bad-open", npy("{'descr': '<f4'")
    yield "bad-key", npy("{1: 2}")
    yield "bad-unknown-key", npy("{'x': 1}")
    yield "bad-key-twice", npy("{'descr': '<f4', 'descr': '<f4'}")
    yield "bad-no-value", npy("{'descr': ")
    yield "bad-no-shape", npy("{'descr': '<f4', 'fortran_order': True}")
    yield "bad-missing", npy("{'descr': '<f4'}")
    yield "bad-after", npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", bytes(4))
    yield "bad-order", npy("{'fortran_order': 1}")
    yield "bad-objects", described("|O", "(2,)", bytes(16))
    yield "bad-structured", npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': ()}")
    yield "bad-descr", described("<c8", "(2,)", bytes(16))
    yield "bad-descr-order", described("|f4", "(2,)", bytes(8))
    yield "bad-descr-unknown-order", described("!u1", "(2,)", bytes(2))
    yield "bad-descr-empty", described("", "(2,)", bytes(8))
    yield "bad-shape", described("<f4", "(2)", bytes(8))
    yield "bad-shape-space", described("<f4", "(2, 2 2)", bytes(8))
    yield "bad-negative", described("<f4", "(-2,)", bytes(8))
    yield "bad-extent-2-63", described("<f4", "(9223372036854775808,)", bytes(8))
    yield "bad-axes", described("|u1", "(" + "1," * 65 + ")", b"x")
    yield "bad-huge", described("<f4", "(4611686018427387904, 4)", bytes(8))
    yield "bad-short", described("<f4", "(3,)", bytes(8))
    yield "bad-long", described("<f4", "(1,)", bytes(8))
    yield "bad-bool", described("|b1", "(2,)", b"\1\2")

    member = described("<f4", "(2,)", bytes(8))
    big = described("<f8", "(9000,)", bytes(72000))
    stored = archive(("a.npy", member))
    deflated = archive(("a/b.npy", member), ("c.npy", big), compression=zipfile.ZIP_DEFLATED)
    yield "ok-npz-stored", stored
    yield "ok-npz-deflated", deflated
    yield "ok-npz-nothing", archive()
    yield "bad-npz-cut", stored[:-30]
    yield "bad-npz-checksum", stored.replace(bytes(8), bytes(7) + b"x", 1)
    yield "bad-npz-deflation", deflated.replace(deflated[37:41], bytes(4), 1)
    yield "bad-npz-name", archive(("a.txt", member))
    yield "bad-npz-path", archive(("../a.npy", member))
    yield "bad-npz-dot", archive(("./a.npy", member))
    yield "bad-npz-backslash", archive(("a\\b.npy", member))
    yield "bad-npz-twice", archive(("a.npy", member), ("b.npy", member)).replace(b"b.npy", b"a.npy")
    yield "bad-npz-method", archive(("a.npy", member), compression=zipfile.ZIP_BZIP2)
    yield "bad-npz-size", archive(("a.npy", member + b"x"))
    yield "bad-npz-header", archive(("a.npy", member[:30]))
    yield "bad-npz-text", archive(("a.npy", b"hello"))
    shared = bytearray(archive(("a.npy", member), ("b.npy", member)))
    second = shared.rindex(b"PK\1\2")
    shared[second + 20 : second + 24] = struct.pack("<I", len(shared) - 10)
    yield "bad-npz-shared", bytes(shared)
    encrypted = bytearray(stored)
    for magic, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        encrypted[encrypted.index(magic) + flags] |= 1
    yield "bad-npz-encrypted", bytes(encrypted)
    # The .npy header and the directory agree on a size, but the deflated stream goes on.
    longer = bytearray(archive(("a.npy", big + bytes(1000)), compression=zipfile.ZIP_DEFLATED))
    for magic, field in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        at = longer.index(magic) + field
        longer[at : at + 4] = struct.pack("<I", len(big))
    yield "bad-npz-deflated-size", bytes(longer)


def dump(shapes, metadata=None, dtypes=None):
    """A safetensors file of zeros (dtype F32 where dtypes does not tell)."""
    entries, offset = [], 0
    if metadata:
        entries.append('"__metadata__":' + json.dumps(metadata))
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name, "F32")
        end = offset + SIZES[dtype] * math.prod(shape)
        entries.append(entry(name, dtype, list(shape), offset, end))
        offset = end
    return safetensors("{" + ",".join(entries) + "}", bytes(offset))


def dump_seeds():
    heads = {"q": (2, 4, 3, 2), "k": (2, 2, 5, 2), "v": (2, 2, 5, 1), "out": (2, 4, 3, 1)}
    merged = {"q": (3, 2, 8), "k": (5, 2, 4), "v": (5, 2, 2), "out": (2, 3, 4)}
    layer = {"x": (1, 3, 4), "wq": (4, 4), "wk": (4, 4), "wv": (4, 4), "wo": (4, 4), "out": (1, 3, 4)}
    packed = {"x": (1, 3, 4), "x_kv": (1, 5, 4), "wqkv": (8, 4), "bqkv": (8,), "out": (1, 2, 3, 2)}
    mask = {"mask": (3, 5), "key_padding": (2, 5), "lengths": (2,), "prefix": (2,), "read_rows": (2, 3)}
    flags = dict(mask="BOOL", key_padding="I64", lengths="I32", prefix="U8", read_rows="BOOL")
    documents = {"query_documents": (2, 3), "key_documents": (2, 5)}
    scores = {"bias": (4, 1, 5), "alibi_slopes": (4,), "sink": (4,), "weights": (2, 4, 3, 5), "lse": (2, 4, 3)}
    positions = {"query_positions": (3,), "key_positions": (2, 5), "q_norm": (2,), "k_norm": (2,)}
    gradients = {"d" + name: shape for name, shape in heads.items()}
    meant = {"mask_true": "keep", "key_padding_true": "drop", "causal": "bottom-right", "window_left": "2"}
    rotary = {"rotary_base": "1e4", "rotary_pairing": "interleaved", "rotary_width": "2", "qk_norm_order": "after-rotary"}
    yield "ok-heads", dump(heads)
    yield "ok-rules", dump(heads | mask, meant, flags)
    yield "ok-documents", dump(heads | documents, None, dict.fromkeys(documents, "I64"))
    yield "ok-scores", dump(heads | scores, {"corner": "-1", "softcap": "30", "scale": "0.5", "lse_base": "2"})
    yield "ok-positions", dump(heads | positions, rotary, dict(query_positions="I64", key_positions="I32"))
    yield "ok-gradients", dump(heads | gradients | {"out2": heads["out"]}, {"dtype": "bfloat16", "empty_row": "any"})
    yield "ok-merged", dump(merged, {"layout": "TBD", "out_layout": "BTD", "heads": "4", "source": "a seed"})
    yield "ok-layer", dump(layer, {"heads": "2", "weight_layout": "in-out", "out_stage": "projected", "causal": "true"})
    yield "ok-packed", dump(packed, {"heads": "2", "kv_heads": "1", "packing": "by-head", "out_layout": "BHTD"})
    text = b'{"causal": "top-left", "heads": 4, "softcap": 0.5}'
    fields = {"metadata": (len(text),)}
    yield "ok-json", dump(fields | heads, None, dict(metadata="U8")).replace(bytes(len(text)), text, 1)

    square = {"q": (2, 2, 3, 2), "k": (2, 2, 3, 2), "v": (2, 2, 3, 2), "out": (2, 2, 3, 2)}
    whole = dict(query_documents="I64", query_positions="I64", key_positions="I64")
    turned = {"rotary_base": "100", "qk_norm_epsilon": "1e-5"}
    yield "ok-square-documents", dump(square | {"query_documents": (2, 3)}, {"causal": "true"}, whole)
    yield "ok-square-keys", dump(square | {"key_positions": (2, 3)}, turned, whole)
    yield "ok-square-queries", dump(square | {"query_positions": (1, 3)}, turned, whole)
    yield "ok-square-counted", dump(square, turned)

    yield "bad-empty", safetensors("{}")
    yield "bad-name", dump(heads | {"quary": (1,)})
    yield "bad-key", dump(heads, {"casual": "true"})
    yield "bad-missing", dump({name: heads[name] for name in ("q", "k", "out")})
    yield "bad-sizes", dump(heads | {"v": (2, 2, 6, 1)}, {"layout": "BHTD"})
    yield "bad-axes", dump(heads | {"k": (2, 5, 4)}, {"layout": "BHTD"})
    yield "bad-empty-axis", dump(heads | {"k": (2, 2, 0, 2), "v": (2, 2, 0, 1)})
    yield "bad-heads", dump(merged, {"layout": "TBD"})
    yield "bad-huge-heads", dump(merged, {"layout": "TBD", "heads": "9223372036854775807"})
    yield "bad-corner", dump(heads, {"causal": "true"})
    yield "bad-polarity", dump(heads | mask, {"mask_true": "keep"}, flags)
    yield "bad-json", dump(heads | fields, None, dict(metadata="U8"))
    yield "bad-document-keys", dump(heads | {"query_documents": (2, 3)}, None, whole)
    yield "bad-no-positions", dump(heads, {"rotary_base": "100"})
    yield "bad-no-rotary", dump(heads | positions, None, dict(query_positions="I64", key_positions="I32"))
    yield "bad-width", dump(square, {"rotary_base": "100", "rotary_width": "3"})
    yield "bad-epsilon", dump(square, {"qk_norm_epsilon": "-1"})
    yield "bad-two-corners", dump(heads, {"causal": "top-left", "corner": "2"})
    yield "bad-mask-key", dump(heads, {"mask_true": "keep"})
    yield "bad-stage", dump(heads, {"out_stage": "merged"})
    yield "bad-stage-of-three", dump(merged, {"layout": "TBD", "heads": "4", "out_stage": "heads"})
    yield "bad-no-projection", dump(merged, {"layout": "TBD", "heads": "4", "out_stage": "projected"})
    alike = dict.fromkeys(("q", "k", "v", "out"), (2, 3, 3, 2))
    yield "bad-ambiguous", dump(alike | {"k": (3, 2, 3, 2), "v": (3, 2, 3, 2), "q": (3, 2, 3, 2)})
    yield "bad-ambiguous-out", dump(square | {"q": (2, 3, 3, 2), "k": (2, 3, 3, 2), "v": (2, 3, 3, 2), "out": (2, 3, 3, 2)})
    yield "bad-rank", dump(heads | {"sink": (4, 1)})
    nan = struct.pack("<f", float("nan"))
    yield "bad-nan", dump({"out": heads["out"]} | heads)[:-4] + nan  # the last value
    yield "bad-nan-bias", dump(heads | {"bias": (4, 1, 5)})[:-4] + nan
    yield "bad-nan-token", dump(layer | {"x": layer["x"]}, {"heads": "2"}).replace(bytes(16), nan * 4, 1)
    yield "bad-small", dump(heads | gradients, None, {"dout": "F64"})[:-4] + struct.pack("<f", 1e-30)
    large = {"x": (1, 1000, 1), "wq": (1000, 1), "wk": (1000, 1), "wv": (1000, 1), "wo": (1, 1000), "out": (1, 1000, 1)}
    yield "bad-large", dump(large, {"heads": "1"})


def main():
    for folder, seeds in (("safetensors", safetensors_seeds()), ("npy", npy_seeds()), ("dump", dump_seeds())):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, content in seeds:
            (CORPUS / folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
