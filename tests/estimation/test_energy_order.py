"""Energy per class at batch 1: the literature's order, and the reason where it differs."""

from dataclasses import replace

import accelsim
from accelsim.estimation.energy_order import class_energies, energy_order_text

#: The CPU is one of the literature's; a Graviton3 changes the order.
DEVICES = ("tpu-v4", "zcu104", "l4", "xeon-e5-2699-v3")


def estimates(batch=1):
    return [accelsim.estimate("resnet-50", device, batch=batch) for device in DEVICES]


def test_resnet_50_at_batch_1_follows_the_literature():
    assert [entry.device_class for entry in class_energies(estimates())] == [
        "asic",
        "fpga",
        "gpu",
        "cpu",
    ]
    assert "not the order" not in energy_order_text(estimates())


def test_a_frugal_cpu_is_before_a_gpu_that_waits_for_its_framework():
    """Its clocks stay up while the framework launches row by row."""
    asic, fpga, gpu, _ = estimates()
    found = [asic, fpga, gpu, accelsim.estimate("resnet-50", "graviton3", batch=1)]
    assert [entry.device_class for entry in class_energies(found)] == ["asic", "fpga", "cpu", "gpu"]
    assert "not the order of the literature: l4 draws" in energy_order_text(found)


def test_a_class_is_its_most_frugal_device():
    more = [*estimates(), accelsim.estimate("resnet-50", "mi300x", batch=1)]
    assert next(e.device for e in class_energies(more) if e.device_class == "gpu") == "l4"


def test_another_order_says_why():
    asic, fpga, gpu, cpu = estimates()
    hungry = replace(fpga, energy_per_sample_j=10 * gpu.energy_per_sample_j, average_power_w=250.0)
    text = energy_order_text([asic, hungry, gpu, cpu])
    assert "not the order of the literature: zcu104 draws 250 W" in text


def test_other_batches_and_single_classes_say_nothing():
    assert energy_order_text(estimates(batch=8)) == ""
    assert energy_order_text(estimates()[:1]) == ""


def test_energies_are_told_in_a_unit_that_fits():
    asic, fpga, *_ = estimates()
    text = energy_order_text(
        [replace(asic, energy_per_sample_j=237.2), replace(fpga, energy_per_sample_j=0.0725)]
    )
    assert "fpga 72.5 mJ (zcu104) < asic 237 J (tpu-v4)" in text


def test_devices_without_a_known_energy_take_no_part_and_the_first_of_equals_stands():
    asic, fpga, gpu, _ = estimates()
    for unknown in ("energy_per_sample_j", "average_power_w", "throughput_per_s"):
        found = class_energies([asic, replace(fpga, **{unknown: None}), gpu])
        assert [entry.device_class for entry in found] == ["asic", "gpu"]
    twin = replace(gpu, device="t4")
    assert next(e.device for e in class_energies([gpu, twin]) if e.device_class == "gpu") == "l4"


def test_a_joule_is_told_in_joules():
    asic, fpga, *_ = estimates()
    assert "asic 1 J" in energy_order_text([replace(asic, energy_per_sample_j=1.0), fpga])
    assert "asic 999 mJ" in energy_order_text([replace(asic, energy_per_sample_j=0.999), fpga])
