"""Workloads from GGUF files: the package of llama.cpp as a second reader, the catalogue's models by
the keys that its converter writes, damaged files.
"""

from __future__ import annotations

import struct

import pytest

import accelsim
from accelsim.catalog.checkpoints.gguf import gguf_config
from accelsim.catalog.checkpoints.huggingface import workload_from_config
from accelsim.errors import InputError, InvalidValueError, ProfileError, UnknownNameError
from accelsim.files.tensorfile import StoredTensor, TensorHeader, read_gguf
from accelsim.handover.fits import fits
from tests.fuzz.gguf_files import VALUES, gguf_bytes, llama_tensors, write


@pytest.mark.parametrize("code", [0, 1, 8])
def test_a_header_says_what_the_package_of_llama_cpp_reads(tmp_path, code):
    gguf = pytest.importorskip("gguf")
    path = write(tmp_path / "small.gguf", code=code)
    header, other = read_gguf(path), gguf.GGUFReader(str(path))
    assert len(header.tensors) == len(other.tensors) == 39
    for tensor in other.tensors:
        own = header.tensors[tensor.name]
        assert own.shape == tuple(int(n) for n in tensor.shape)
        assert (own.dtype, own.size_bytes) == (tensor.tensor_type.name.lower(), tensor.n_bytes)
    assert header.values["llama.block_count"] == other.get_field("llama.block_count").contents()


def test_a_file_that_the_package_wrote_is_read(tmp_path):
    gguf, np = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama")
    writer.add_block_count(4)
    writer.add_head_count_kv([2, 2, 2, 2])
    writer.add_token_list(["a", "b"])
    writer.add_tensor("x.weight", np.zeros((6, 32), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf(tmp_path / "w.gguf")
    assert header.tensors == {"x.weight": StoredTensor((32, 6), "f16", 384)}
    assert header.values["llama.attention.head_count_kv"] == (2, 2, 2, 2)
    assert header.values["tokenizer.ggml.tokens"] is None


def test_a_file_is_estimated_in_its_own_format(tmp_path):
    path = write(tmp_path / "small.gguf")
    answer = accelsim.estimate(str(path), "rtx-4090")
    assert (answer.workload, answer.stack, answer.precision) == ("small-llama", "llama-cpp", "q8_0")
    assert answer.parameter_count == 912_512
    assert answer.memory["weight_bytes"] == pytest.approx(972_928)  # 8.53 bits, the norms in FP32


def test_a_file_of_a_catalogued_model_is_that_model(tmp_path):
    sizes = {"embedding_length": 2048, "block_count": 16, "feed_forward_length": 8192}
    sizes |= {"attention.head_count": 32, "attention.head_count_kv": 8, "context_length": 131_072}
    values = {**VALUES, **{f"llama.{key}": value for key, value in sizes.items()}}
    parts = llama_tensors(values)
    del parts["output.weight"]
    parts["token_embd.weight"] = ((2048, 128_256), 8)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(values, parts, data=b""))
    with path.open("r+b") as file:
        file.truncate(1_400_000_000)  # nothing is written there
    answer = accelsim.estimate(str(path), "rtx-4090")
    other = accelsim.estimate("llama-3.2-1b", "rtx-4090", precision="q8_0", stack="llama-cpp")
    assert answer.parameter_count == other.parameter_count
    assert answer.latency_s == pytest.approx(other.latency_s, rel=0.01)  # 8.50 bits for 8.501
    ways = fits(str(path), "rtx-4090").ways
    assert [way.precision for way in ways].count("q8_0") == 1
    assert {way.stack for way in ways} == {"llama-cpp"}
    assert ways[0].tokens_per_s == pytest.approx(1 / answer.time_per_output_token_s, rel=0.01)
    assert ways[0].line == f"llama-server -m {path} -c 4096 -ngl 99"


#: Catalogued model -> architecture, its keys, tensors that tell of variants.
KNOWN = {
    "qwen2.5-7b": (
        "qwen2",
        """embedding_length=3584 block_count=28 feed_forward_length=18944 attention.head_count=28
        attention.head_count_kv=4""",
        ("blk.0.attn_q.bias", "output.weight"),
    ),
    "qwen3-30b-a3b": (
        "qwen3moe",
        """embedding_length=2048 block_count=48 feed_forward_length=6144 attention.head_count=32
        attention.head_count_kv=4 attention.key_length=128 expert_count=128 expert_used_count=8
        expert_feed_forward_length=768""",
        ("output.weight",),
    ),
    "mixtral-8x7b": (
        "llama",
        """embedding_length=4096 block_count=32 feed_forward_length=14336 attention.head_count=32
        attention.head_count_kv=8 expert_count=8 expert_used_count=2 rope.dimension_count=128""",
        ("output.weight", "blk.0.ffn_gate_exps.weight"),
    ),
    "gemma-3-27b": (
        "gemma3",
        """embedding_length=5376 block_count=62 feed_forward_length=21504 attention.head_count=32
        attention.head_count_kv=16 attention.key_length=128 attention.sliding_window=1024""",
        (),
    ),
    "gpt-oss-20b": (
        "gpt-oss",
        """embedding_length=2880 block_count=24 feed_forward_length=2880 attention.head_count=64
        attention.head_count_kv=8 attention.key_length=64 attention.sliding_window=128
        expert_count=32 expert_used_count=4 expert_feed_forward_length=2880""",
        ("blk.0.attn_q.bias", "output.weight"),
    ),
    "deepseek-v3": (
        "deepseek2",
        """embedding_length=7168 block_count=61 feed_forward_length=18432 attention.head_count=128
        attention.head_count_kv=1 attention.q_lora_rank=1536 attention.kv_lora_rank=512
        attention.key_length=576 attention.value_length=512 attention.key_length_mla=192
        attention.value_length_mla=128 rope.dimension_count=64 expert_count=256
        expert_used_count=8 expert_feed_forward_length=2048 expert_shared_count=1
        leading_dense_block_count=3""",
        ("blk.3.exp_probs_b.bias", "output.weight"),
    ),
    "minimax-m2": (
        "minimax-m2",
        """embedding_length=3072 block_count=62 feed_forward_length=1536 attention.head_count=48
        attention.head_count_kv=8 attention.key_length=128 rope.dimension_count=64
        expert_count=256 expert_used_count=8 expert_feed_forward_length=1536""",
        ("blk.0.exp_probs_b.bias", "output.weight"),
    ),
    "qwen3-next-80b-a3b": (
        "qwen3next",
        """embedding_length=2048 block_count=48 feed_forward_length=5120 attention.head_count=16
        attention.head_count_kv=2 attention.key_length=256 rope.dimension_count=64
        expert_count=512 expert_used_count=10 expert_feed_forward_length=512
        expert_shared_feed_forward_length=512 ssm.group_count=16 ssm.time_step_rank=32
        ssm.state_size=128 ssm.conv_kernel=4""",
        ("output.weight",),
    ),
    "llama-4-scout": (
        "llama4",
        """embedding_length=5120 block_count=48 feed_forward_length=16384 attention.head_count=40
        attention.head_count_kv=8 attention.key_length=128 expert_count=16 expert_used_count=1
        expert_feed_forward_length=8192 interleave_moe_layer_step=1""",
        ("output.weight",),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_keys_of_the_converter_give_the_catalogues_parameters(name):
    architecture, keys, marks = KNOWN[name]
    values: dict[str, object] = {"general.architecture": architecture}
    for word in keys.split():
        key, _, value = word.partition("=")
        values[f"{architecture}.{key}"] = int(value)
    wanted = accelsim.workload(name).parameters.model_dump(exclude={"mtp_layers"})
    values[f"{architecture}.context_length"] = wanted["max_positions"]
    embedding = StoredTensor((wanted["hidden_size"], wanted["vocab_size"]), "f16", 0)
    parts = {"token_embd.weight": embedding} | dict.fromkeys(marks, StoredTensor((1,), "f16", 2))
    config = gguf_config(TensorHeader(values, parts))
    found = workload_from_config(config, name).parameters.model_dump(exclude={"mtp_layers"})
    assert found == wanted


def test_parts_of_a_model_are_read_together(tmp_path):
    whole = llama_tensors(VALUES)
    names = list(whole)
    for number, some in enumerate((names[:20], names[20:]), 1):
        about = {"split.count": 2, "split.no": number - 1}
        values = {**VALUES, **about} if number == 1 else about
        path = tmp_path / f"m-{number:05}-of-00002.gguf"
        path.write_bytes(gguf_bytes(values, {name: whole[name] for name in some}))
    first = tmp_path / "m-00001-of-00002.gguf"
    assert accelsim.estimate(str(first), "t4").parameter_count == 912_512
    with pytest.raises(ProfileError, match="00001-of-00002"):
        accelsim.workload(str(path))
    lone = tmp_path / "n-00001-of-00002.gguf"
    first.rename(lone)
    with pytest.raises(ProfileError, match="n-00002-of-00002"):
        accelsim.workload(str(lone))


def bad(tmp_path, raw):
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    ("at", "piece", "words"),
    [
        (0, b"GGML", "begin with GGUF"),
        (4, struct.pack("<I", 1), "version 1"),
        (4, struct.pack(">I", 3), "version 50331648"),
        (8, struct.pack("<Q", 2**63), "a count of"),
        (16, struct.pack("<Q", 10**5), "a count of|value of kind|ends within"),
        (24, struct.pack("<Q", 2**40), "a count of"),
    ],
)
def test_damaged_headers_are_refused(tmp_path, at, piece, words):
    raw = gguf_bytes(VALUES, llama_tensors(VALUES))
    with pytest.raises(ProfileError, match=words):
        read_gguf(bad(tmp_path, raw[:at] + piece + raw[at + len(piece) :]))


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    raw = gguf_bytes(VALUES, llama_tensors(VALUES))
    for size in (0, 3, 20, 100, 10_000, len(raw) - 100):
        with pytest.raises(ProfileError, match="GGUF"):
            read_gguf(bad(tmp_path, raw[:size]))


def test_a_header_takes_no_more_than_its_length(tmp_path):
    """A vocabulary of 400,000 words is gone over, and lists beyond all layers are not kept."""
    words = {"tokenizer.ggml.tokens": ["ab"] * 400_000}
    path = bad(tmp_path, gguf_bytes({**VALUES, **words}, llama_tensors(VALUES)))
    assert read_gguf(path).values["tokenizer.ggml.tokens"] is None
    lists = {f"x.{number}": [1] * 4096 for number in range(250)}
    with pytest.raises(ProfileError, match="numbers in lists"):
        read_gguf(bad(tmp_path, gguf_bytes(lists, {})))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"llama.block_count": 3}, "is not modelled"),
        ({"llama.feed_forward_length": 640}, "is not modelled"),
        ({"llama.attention.head_count_kv": [2, 2, 2, 4]}, "the same number for each layer"),
        ({"llama.block_count": "four"}, "block_count"),
        ({"llama.embedding_length": -1}, "hidden_size"),
        ({"general.alignment": 0}, "alignment"),
        ({"general.architecture": "lama"}, "Did you mean llama"),
    ],
)
def test_other_sizes_are_refused_by_name(tmp_path, changes, words):
    path = bad(tmp_path, gguf_bytes({**VALUES, **changes}, llama_tensors(VALUES)))
    with pytest.raises(InputError, match=words):
        accelsim.workload(str(path))


@pytest.mark.parametrize(
    ("part", "words"),
    [(((128,), 99), "unknown format 99"), (((100, 2), 12), "sizes that"), (((0, 2), 0), "sizes")],
)
def test_bad_tensors_are_refused_by_name(tmp_path, part, words):
    with pytest.raises(ProfileError, match=words):
        read_gguf(bad(tmp_path, gguf_bytes(VALUES, {"x": part})))


def test_missing_sizes_are_named():
    with pytest.raises(UnknownNameError, match="Supported: llama"):
        gguf_config(TensorHeader({}, {}))
    with pytest.raises(InvalidValueError, match="block_count"):
        gguf_config(TensorHeader({"general.architecture": "llama"}, {}))
