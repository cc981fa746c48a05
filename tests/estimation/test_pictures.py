"""Pictures in prompts: an encoder's pass and tokens beside those of the text."""

import pytest

import accelsim
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import RunOptions, RunShape
from accelsim.serving.options import ServingOptions
from accelsim.serving.plan import replica_plan

GPU = "h100-sxm-80gb"
MODEL = "qwen2.5-vl-7b"


def asked(model=MODEL, **options):
    return accelsim.estimate(model, GPU, **{"seq_len": 256, "output_len": 32, **options})


def test_no_picture_is_what_it_was():
    without, none = asked(), asked(images=0)
    assert none.figures() == without.figures()
    assert without.inputs["images"] == 0


def test_a_picture_is_its_tokens_and_a_pass_of_its_encoder():
    e = asked(images=2, image_size=1024)
    tokens = 256 + 2 * 37**2
    assert e.seq_len == tokens
    text = asked(seq_len=tokens)
    encoder = accelsim.estimate("qwen2.5-vl-7b-vision", GPU, batch=2, image_size=1024)
    assert e.flop == pytest.approx(text.flop + encoder.flop, rel=1e-12)
    assert e.parameter_count == text.parameter_count + encoder.parameter_count == 8_292_166_656
    assert text.time_to_first_token_s < e.time_to_first_token_s
    assert e.time_to_first_token_s < text.time_to_first_token_s + 1.1 * encoder.latency_s
    assert e.memory_bytes > text.memory_bytes


@pytest.mark.parametrize("option", ["images", "image_size"])
def test_more_or_larger_pictures_are_never_faster(option):
    sizes = {"images": (1, 2, 5), "image_size": (28, 336, 500, 1024, 2048)}[option]
    runs = [asked(**{"images": 1, "image_size": 448, option: size}) for size in sizes]
    for name in ("latency_s", "time_to_first_token_s", "energy_per_sample_j", "memory_bytes"):
        values = [getattr(run, name) for run in runs]
        assert values == sorted(values), name


@pytest.mark.parametrize(
    ("model", "image_size", "tokens"),
    [
        ("gemma-3-27b", None, 256),
        ("gemma-3-27b", 2048, 256),  # scaled to 896 pixels
        ("llama-4-scout", 336, 144),
        ("llama-4-scout", 1024, 17 * 144),  # 4 x 4 tiles and the whole picture
        ("llama-4-scout", 4096, 17 * 144),
        ("qwen3-vl-8b", 1024, 1024),
    ],
)
def test_tokens_follow_the_rule_of_the_model(model, image_size, tokens):
    assert asked(model, images=1, image_size=image_size).seq_len == 256 + tokens


@pytest.mark.parametrize(
    ("model", "options", "field"),
    [
        ("llama-3.1-8b", {"images": 1}, "images"),
        (MODEL, {"images": -1}, "images"),
        (MODEL, {"images": 10_000}, "images"),
        (MODEL, {"image_size": 448}, "image_size"),
        (MODEL, {"images": 1, "offload": 4}, "offload"),
        (MODEL, {"images": 1, "mode": "training", "output_len": None}, "images"),
    ],
)
def test_pictures_that_say_nothing_are_refused(model, options, field):
    with pytest.raises(InvalidValueError, match=field):
        asked(model, **options)


def test_many_answers_are_those_of_one():
    shapes = {"batch": [1, 2]}
    many = accelsim.estimate_many(MODEL, GPU, seq_len=256, output_len=32, images=1, shapes=shapes)
    ours = [asked(images=1, batch=batch).latency_s for batch in (1, 2)]
    assert list(many["latency_s"]) == pytest.approx(ours)


def test_servers_refuse_pictures_by_name():
    options = RunOptions(shape=RunShape(images=1))
    with pytest.raises(InvalidValueError, match="images"):
        replica_plan(MODEL, GPU, options, ServingOptions(), max_context=512)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("qwen3-vl-8b", 8_767_123_696),
        ("gemma-3-4b", 4_300_079_472),
        ("gemma-3-12b", 12_187_325_040),
        ("gemma-3-27b", 27_432_406_640),
    ],
)
def test_model_and_encoder_have_the_parameters_of_the_checkpoint(model, parameters):
    """Sizes that the Hugging Face Hub gives for their safetensors files."""
    assert asked(model, images=1).parameter_count == parameters


def test_every_encoder_of_pictures_is_catalogued():
    named = {accelsim.workload(name).picture_encoder for name in accelsim.workload_names()} - {None}
    assert named >= {"qwen2.5-vl-7b-vision", "gemma-3-27b-vision", "llama-4-vision"}
    for name in named:
        assert accelsim.workload(name).family.name == "picture-encoder"


def test_lengths_of_many_count_the_tokens_of_pictures_too():
    row = {"workload": MODEL, "device": GPU, "seq_len": 256, "images": 2, "image_size": 448}
    many = accelsim.estimate_many([row, row | {"images": None, "image_size": None}])
    assert many["seq_len"].tolist() == [asked(images=2, image_size=448).seq_len, 256]


@pytest.mark.parametrize(
    ("what", "board", "seq_len"), [("offload", "t4", 512), ("seq_len", "rtx-4090", 200_000)]
)
def test_what_would_fit_can_be_asked_for(what, board, seq_len):
    """Neither layers on the host nor a length that counts the tokens of pictures."""
    text, pictures = (
        accelsim.estimate(MODEL, board, seq_len=seq_len, output_len=8, images=n).would_fit
        for n in (0, 1)
    )
    assert what in {change.what for change in text}
    assert pictures
    assert what not in {change.what for change in pictures}
