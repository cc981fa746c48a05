"""A device's memory is one figure in every answer, and blocks that are stated are held."""

import pytest

import accelsim
from accelsim import catalog
from accelsim.cost.memory import available_bytes
from accelsim.errors import DoesNotFitError, InputError, InvalidValueError
from accelsim.report.devices import device_row
from accelsim.serving.loads.arrivals import Arrivals

DEVICES = catalog.device_names()
LOAD = Arrivals(requests=20, rate_per_s=5.0, prompt="1000", output="100")


@pytest.mark.parametrize("name", DEVICES)
def test_every_command_says_the_same_of_a_device(name):
    device = catalog.device(name)
    memory = device_row(device)["memory_bytes"]
    assert 0 < available_bytes(device) <= memory <= device.memory.capacity_bytes.value
    said = []
    for answer in (
        lambda: accelsim.estimate("mnist-mlp", device).device_memory_bytes,
        lambda: accelsim.train("mnist-mlp", device=name, batch=1).device_memory_bytes,
        lambda: accelsim.serve("llama-3.1-405b", device, LOAD).plan["device_memory_bytes"],
    ):
        try:
            said.append(answer())
        except DoesNotFitError as error:
            said += [error.available] if error.resource == "memory_bytes" else []
        except InputError:
            continue  # what the device does not run
    assert set(said) <= {memory}
    assert len(said) == 3 or device.device_class != "gpu"
    assert said or device.device_class == "fpga"


def test_a_run_that_does_not_fit_is_told_by_the_memory_of_the_device():
    with pytest.raises(DoesNotFitError, match="The driver, the allocator") as told:
        accelsim.train("llama-3.1-8b", device="h100-sxm-80gb", batch=1)
    assert told.value.available == catalog.device("h100-sxm-80gb").memory_bytes


def served(**options):
    return accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", LOAD, **options)


def test_stated_blocks_are_those_of_the_replica():
    plan = served(kv_blocks=1234).plan
    assert plan["blocks"] == 1234
    assert plan["kv_cache_bytes"] == 1234 * 16 * 131_072
    assert served().plan["blocks"] > 25_000


def test_fewer_blocks_serve_no_sooner():
    few, many = (served(kv_blocks=count) for count in (150, 20_000))
    assert few.e2e_s["mean"] > many.e2e_s["mean"]
    assert few.completed == many.completed == 20


@pytest.mark.parametrize("count", [0, -1, 1.5, "many"])
def test_blocks_that_are_no_count_are_refused(count):
    with pytest.raises(InvalidValueError, match="kv_blocks"):
        served(kv_blocks=count)


def test_more_blocks_than_the_memory_holds_are_refused():
    with pytest.raises(DoesNotFitError, match=r"kv blocks.*Give fewer"):
        served(kv_blocks=40_000)
