"""Headers of safetensors files: the package as a writer, damaged ones, the model beside."""

from __future__ import annotations

import json

import pytest

import accelsim
from accelsim.errors import ProfileError
from accelsim.files.tensorfile import StoredTensor, read_safetensors


def written(path, header, data=0):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(data))
    return path


def test_a_file_that_the_package_wrote_is_read(tmp_path):
    np, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.zeros((3, 4), np.float16), "b": np.zeros((5,), np.float32)}
    path = tmp_path / "m.safetensors"
    safetensors.save_file(arrays, path, metadata={"format": "pt"})
    header = read_safetensors(path)
    assert header.tensors == {
        "a": StoredTensor((3, 4), "F16", 24),
        "b": StoredTensor((5,), "F32", 20),
    }
    assert (header.parameter_count, header.size_bytes) == (17, 44)
    assert header.values == {"format": "pt"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        {"a": 1},
        {"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 40]}},
        {"a": {"dtype": "F16", "shape": [-2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F16", "shape": [2.5], "data_offsets": [0, 4]}},
        {"a": {"dtype": 16, "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F16", "shape": [2], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F16", "shape": [2]}},
    ],
)
def test_damaged_headers_are_refused(tmp_path, header):
    with pytest.raises(ProfileError):
        read_safetensors(written(tmp_path / "m.safetensors", header, data=8))


@pytest.mark.parametrize("raw", [b"", b"abc", (2**62).to_bytes(8, "little") + b"{}"])
def test_lengths_are_held_against_the_file(tmp_path, raw):
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ProfileError, match="no such length"):
        read_safetensors(path)


def test_weights_are_estimated_with_the_configuration_beside_them(tmp_path):
    path = written(
        tmp_path / "model.safetensors",
        {"w": {"dtype": "BF16", "shape": [1000, 1000], "data_offsets": [0, 2_000_000]}},
        2_000_000,
    )
    with pytest.raises(ProfileError, match=r"config\.json"):
        accelsim.workload(str(path))
    sizes = {"vocab_size": 1000, "hidden_size": 128, "intermediate_size": 320}
    sizes |= {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
    config = {"model_type": "llama", "_name_or_path": "Small", "torch_dtype": "auto", **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    answer = accelsim.estimate(str(path), "t4")
    assert answer.workload == "small"
    assert any(
        "hold 2.00 MB, the weights of what is answered 1.83 MB" in w for w in answer.warnings
    )
