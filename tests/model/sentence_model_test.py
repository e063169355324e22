"""The sentence model against the reference implementations, on the files of all-MiniLM-L6-v2: words and tokens against the
tokenizers library, vectors against transformers' BertModel and mean pooling."""

import json
import os
import pathlib
import re
import subprocess
import unicodedata

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ["QKV_MINILM"])
PROBE = os.environ["QKV_SENTENCE_PROBE"]
# What Python's own tables lack may be newer than ICU's, too.
CODE_POINTS = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]

STRANGE = [
    "Crème brûlée, naïve façade, Ångström, Łódź, smørrebrød, Dvořák, İstanbul, ΟΔΟΣ Οδός",
    "cafe\u0301 re\u0301sume\u0301 a\u0323\u0307b\u0307\u0323 \u1e69 q\u0307\u0323 \u0344x",
    "ﬁne ﬂow Ｆｕｌｌｗｉｄｔｈ ½ ² ℌ ﷺ ǅ ẞ ß ŉ",
    "中文字符，與標點。漢字かな交じり文カタカナ ｶﾀｶﾅ 한국어 각 𠀀𪛖𫜴𫠝𬺡 ㍿ 豈",
    "emoji 😀🤣🫠 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 1️⃣ ❤️ 🇩🇪 ☃",
    "zero\u200bwidth\u200cjoin\u200der soft\u00adhyphen bom\ufeff rtl\u202e\u202c word\u2060joiner",
    "control \x00\x01\x07\x0b\x0c\x1f\x7f\x85 tab\tline\nreturn\r\n nbsp\xa0em\u2003ideographic\u3000 \u2028\u2029",
    "replacement \ufffd private \ue000 \U000f0000 unassigned \u0378 noncharacter \uffff",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ¡¿«»‹›“”‘’„‚—–…·•†‡§¶※‽⁂ 、。「」〈〉〜・",
    "don't can't it's o'clock rock'n'roll U.S.A. 3.14 1,000,000 a@b.org http://x.y/z?q=1#f",
    "$9.99 €5 £7 ¥100 50% x+y=z a<b a|b ~tilde ^caret `tick`",
    "a" * 100 + " " + "a" * 101 + " " + "é" * 100 + " " + "é" * 101 + " " + "e\u0301" * 60,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis Donaudampfschifffahrt",
    "[CLS] and [SEP] and [MASK], [PAD]x[UNK] [cls] [ SEP ] [MASK][MASK] [SEP]",
    "x[SEP]y é[MASK]é 中[CLS]文 [[SEP]] [SEP",
    "unused [unused1] ##ing # ## ### ing ##",
    "ไทย हिन्दी தமிழ் বাংলা العَرَبِيَّة עִבְרִית ქართული Հայերեն ខ្មែរ မြန်မာ",
    "Ѐѐ Йй Ёё Її ў Ќ Ѓ ЩУКА Việt Nam tiếng ế ộ ữ Ἀθῆναι ᾳ ῷ ᾿",
    "\u1100\u1161\u11a8 \u302e\u302f \U0001d15e \U0001d1bb \u0f73 \u2126 \u212b \u2adc",
    "", " ", "\t\n", "\u0301", "\x00", "...", "a", "中",
    "word " * 400,
    "long 中文 " * 150,
]


def sentences(text):
    pieces = re.split(r"(?<=[.!?;:。！？；])\s*|\n\n+|\n(?=[#|*-])", text)
    return [piece for piece in pieces if piece.strip()]


def real_texts():
    texts = sentences((ROOT / "data" / "alice.txt").read_text(encoding="utf-8"))
    for document in sorted((ROOT / "docs").glob("*.zh-CN.md")):
        texts += sentences(document.read_text(encoding="utf-8"))
    return texts


def probe(folder, mode, arguments, inputs, name="out.json"):
    given, made = folder / "in.json", folder / name
    given.write_text(json.dumps(inputs), encoding="utf-8")
    run = subprocess.run([PROBE, mode, *arguments, given, made], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return made


@pytest.fixture(scope="module")
def rust():
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def in_bytes(text, characters):
    return len(text[:characters].encode())


def expect_tokens(folder, texts, encode, most=None):
    inputs = {"texts": texts} | ({"most": most} if most else {})
    rows = json.loads(probe(folder, "tokens", [FOLDER], inputs).read_text())
    assert len(rows) == len(texts)
    for text, (ids, tokens, begins, ends) in zip(texts, rows):
        expected = encode(text)
        assert ids == expected.ids, text
        assert tokens == expected.tokens, text
        places = [(in_bytes(text, a), in_bytes(text, b)) for a, b in expected.offsets]
        assert list(zip(begins, ends)) == places, text


def test_tokens_are_those_of_the_reference(rust, tmp_path):
    texts = real_texts()
    assert len(texts) >= 1000
    expect_tokens(tmp_path, texts + STRANGE, rust.encode)


def test_tokens_are_those_of_transformers(tmp_path):
    auto = AutoTokenizer.from_pretrained(FOLDER)
    texts = real_texts()[::7] + STRANGE
    rows = json.loads(probe(tmp_path, "tokens", [FOLDER], {"texts": texts}).read_text())
    assert [row[0] for row in rows] == [auto(text)["input_ids"] for text in texts]


@pytest.mark.parametrize("most", [2, 3, 16, 256])
def test_truncated_tokens_are_those_of_the_reference(rust, tmp_path, most):
    limited = Tokenizer.from_str(rust.to_str())
    limited.enable_truncation(most)
    expect_tokens(tmp_path, STRANGE + real_texts()[:100], limited.encode, most)


@pytest.mark.parametrize("lower_case", [True, False])
def test_every_assigned_code_point_is_read_as_the_reference_reads_it(rust, tmp_path, lower_case):
    normalizer, splitter = rust.normalizer, rust.pre_tokenizer
    normalizer.lowercase = lower_case
    texts = [
        " ".join(f"A{chr(c)}b" for c in CODE_POINTS[i : i + 512])
        for i in range(0, len(CODE_POINTS), 512)
    ]
    inputs = {"texts": texts, "lower_case": lower_case}
    words = json.loads(probe(tmp_path, "words", [], inputs).read_text())
    for text, ours in zip(texts, words):
        theirs = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
        assert [w for w in ours if w not in theirs] == [w for w in theirs if w not in ours]
        assert ours == theirs


def reference_vectors(texts):
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = BertModel.from_pretrained(FOLDER, attn_implementation="eager").eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        tokens = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None].float()
    means = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    return torch.nn.functional.normalize(means, dim=-1), batch["attention_mask"].sum(1)


def test_vectors_are_those_of_the_reference(tmp_path):
    texts = sorted(set(real_texts()), key=len)
    texts = texts[:: len(texts) // 46][:46]
    texts += ["word " * 300, STRANGE[3], STRANGE[4], "Alice"]
    assert len(texts) == 50
    padded, lengths = reference_vectors(texts)
    assert len(set(lengths.tolist())) >= 20 and lengths.max() == 256
    alone = torch.cat([reference_vectors([text])[0] for text in texts])
    ours = load_file(probe(tmp_path, "embed", [FOLDER], {"texts": texts}, "out.safetensors"))
    assert (ours["padded"] - padded).abs().max() <= 1e-5
    assert (ours["alone"] - alone).abs().max() <= 1e-5
    assert torch.equal(ours["alone"], ours["padded"])  # padding leaves no trace in any bit
