"""Cloud instances and product names as devices."""

from __future__ import annotations

import pytest

import accelsim
from accelsim import catalog
from accelsim.capacity.candidates import candidates
from accelsim.capacity.hardware_asked import CandidateHardware
from accelsim.catalog.instances import instance_names, sold_as
from accelsim.economics import PriceBook
from accelsim.errors import InputError, UnknownNameError

BOOK = PriceBook.load()


@pytest.mark.parametrize(
    ("instance", "device", "count"),
    [
        ("p5.48xlarge", "h100-sxm-80gb", 8),
        ("P4D.24XLARGE", "a100-sxm-40gb", 8),
        ("a2-highgpu-8g", "a100-sxm-40gb", 8),
        ("Standard_ND96isr_H100_v5", "h100-sxm-80gb", 8),
        ("g4dn.xlarge", "t4", 1),
        ("tpu-v4-8", "tpu-v4", 4),
        ("n1-standard-4+t4-x1", "t4", 1),
    ],
)
def test_an_instance_means_its_board_and_count(instance, device, count):
    profile = catalog.device(instance)
    assert profile.name == device
    assert profile.instance.name.lower() == instance.lower()
    assert profile.instance.device_count == count
    assert profile.model_copy(update={"instance": None}) == catalog.device(device)
    assert profile.model_dump_json() == catalog.device(device).model_dump_json()


def test_every_instance_with_a_device_is_one_at_its_own_price():
    """At the price of its cheapest region; others say why they are none."""
    for name in instance_names():
        sold = sold_as(name)
        if not sold.device or (not sold.accelerators and not sold.cores):
            with pytest.raises(InputError):
                catalog.device(name)
            continue
        profile = catalog.device(name)
        assert profile.whole_name == sold.device
        offers = [one for one in BOOK.offers(sold.device) if one.instance == name]
        least = min(one.on_demand_usd_per_hour or float("inf") for one in offers)
        price = accelsim.economics.device_price.device_price(
            profile, accelsim.PriceChoice(provider_class="any")
        )
        if price.usd_per_hour is not None and sold.accelerators >= 1:
            assert price.usd_per_hour * sold.accelerators == pytest.approx(least)
            assert price.offer.endswith(name)


def test_a_cpu_instance_is_a_slice_of_its_socket_and_costs_the_whole_instance():
    run = accelsim.estimate("resnet-18", "c7i.16xlarge", batch=1)
    assert run.device == "xeon-platinum-8480+@32core"
    quote = BOOK.find("aws/us-east-1/c7i.16xlarge")
    assert run.usd_per_hour == pytest.approx(quote.instance_usd_per_hour)


def test_a_part_of_a_board_is_a_slice_of_it_and_costs_the_whole_instance():
    part = next(one for one in BOOK.offers("a10", "azure") if (one.device_count or 1) < 1)
    run = accelsim.estimate("resnet-18", part.instance)
    assert run.device.startswith("a10@fraction=")
    least = min(
        one.on_demand_usd_per_hour for one in BOOK.offers("a10") if one.instance == part.instance
    )
    assert run.usd_per_hour == pytest.approx(least)


def test_training_takes_all_devices_of_an_instance():
    whole = accelsim.train("bert-base", device="p4d.24xlarge", precision="bf16")
    assert whole.device_count == 8
    assert "p4d.24xlarge" in whole.offer
    assert accelsim.train("bert-base", device="p4d.24xlarge", gpus=2).device_count == 2
    assert accelsim.train("bert-base", device="a100-sxm-40gb").device_count == 1


def test_a_plan_buys_a_device_in_the_instances_named_alone():
    found, _ = candidates(CandidateHardware(devices=("p5.48xlarge", "l4")), "location")
    assert {c.quote.offer.instance for c in found if c.device == "h100-sxm-80gb"} == {"p5.48xlarge"}
    assert any(c.device == "l4" for c in found)
    both, _ = candidates(CandidateHardware(devices=("p5.48xlarge", "h100-sxm-80gb")), "location")
    assert len({c.quote.offer.instance for c in both}) > 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpu_8x_v100", "SXM2 or PCIe"),
        ("e2-standard-8", "which CPU"),
        ("p5.48xlarg", "Did you mean p5.48xlarge"),
        ("p99.metal", "See all with"),
    ],
)
def test_an_instance_of_no_device_says_why(name, says):
    with pytest.raises(UnknownNameError, match=says):
        catalog.device(name)


def test_an_instance_without_the_price_asked_for_says_so():
    run = accelsim.estimate("lenet-5", "p5.48xlarge", provider="gcp")
    assert run.usd_per_hour is None
    assert any("no price of p5.48xlarge" in text for text in run.warnings)


#: What ``nvidia-smi --query-gpu=name`` and ``rocm-smi`` print.
PRODUCTS = {
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A10G": "a10g",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA RTX A6000": "rtx-a6000",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "AMD Instinct MI300X OAM": "mi300x",
}


@pytest.mark.parametrize(("product", "device"), PRODUCTS.items())
def test_a_device_goes_by_the_name_its_driver_prints(product, device):
    assert catalog.device(product).name == device
