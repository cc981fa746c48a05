"""``accelsim devices``, ``workloads`` and ``offers``."""

from __future__ import annotations

import pytest

from accelsim import catalog
from accelsim.catalog.workloads import workload_names
from accelsim.economics.price import PriceBook
from accelsim.files.datafile import data_root

COMMANDS = [
    ("devices", "list", "--class", "fpga"),
    ("devices", "show", "t4"),
    ("workloads", "list", "--task", "image-classification"),
    ("workloads", "show", "resnet-18"),
    ("offers", "list", "--device", "t4"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
@pytest.mark.parametrize("columns", ["80", "100"])
def test_every_listing_has_every_format(run, monkeypatch, command, output_format, columns):
    monkeypatch.setenv("COLUMNS", columns)
    ran = run(*command, "--format", output_format)
    assert ran.code == 0
    if output_format == "json":
        assert ran.json
    elif output_format == "csv":
        assert ran.rows
    else:
        assert max(map(len, ran.out.splitlines())) <= int(columns)


def test_device_rows_carry_what_is_promised(run):
    rows = run("devices", "list", "--format", "json").json
    names = [row["name"] for row in rows]
    assert set(catalog.device_names()) <= set(names)
    assert {"h100-sxm-80gb", "a100-pcie-40gb", "t4", "tpu-v4", "zcu104", "epyc-9654"} <= set(names)
    for row in rows:
        assert row["name"]
        assert row["vendor"]
        assert row["class"] in {"cpu", "gpu", "fpga", "asic"}
        assert isinstance(row["year"], int)
    t4 = rows[names.index("t4")]
    assert t4["peak_flop_per_s"]["fp16"] == catalog.device("t4").peak_flop_per_s[3]
    assert t4["memory_bandwidth_bytes_per_s"] == 320e9
    assert t4["limit_w"] == 70


def test_this_machine_comes_first(run):
    own = catalog.detect_local_devices()
    rows = run("devices", "list", "--format", "json").json
    assert [row["name"] for row in rows if row["local"]] == [device.name for device in own]
    assert [row["local"] for row in rows] == sorted((row["local"] for row in rows), reverse=True)


def test_devices_are_filtered(run, refused):
    rows = run("devices", "list", "--class", "GPU", "--vendor", "nvidia", "--format", "json").json
    assert rows
    assert {(row["class"], row["vendor"]) for row in rows} == {("gpu", "NVIDIA")}
    assert "fpga" in refused("devices", "list", "--class", "fpgas")
    nothing = ("devices", "list", "--class", "fpga", "--vendor", "nvidia", "--format")
    assert run(*nothing, "csv").out.startswith("name,class,vendor,year,")
    assert run(*nothing, "json").json == []


def test_a_device_shows_each_number_with_its_source(run):
    document = run("devices", "show", "T4", "--format", "json").json
    fields = {row["field"]: row for row in document["numbers"]}
    assert fields["memory.bandwidth_bytes_per_s"]["value"] == 320e9
    assert all(
        row["source"] and row["kind"] in {"datasheet", "measured", "derived", "estimate"}
        for row in fields.values()
    )
    text = run("devices", "show", "t4").out
    assert "320 GB/s" in text
    assert "70.0 W" in text
    assert "sources" in text


def test_a_slice_and_a_file_can_be_shown(run, tmp_path):
    document = run("devices", "show", "epyc-7763@8vcpu", "--format", "json").json
    assert document["facts"]["slice_of"] == "epyc-7763"
    sliced = tmp_path / "half.yaml"
    sliced.write_text("name: half-t4\nslice: {of: t4, fraction: 0.5}\n", encoding="utf-8")
    assert run("devices", "show", sliced, "--format", "json").json["name"] == "half-t4"


def test_all_shipped_devices_are_valid(run):
    rows = run("devices", "validate", "--format", "json").json
    assert len(rows) == len(catalog.device_names())
    assert all(row["valid"] for row in rows)


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_an_invalid_profile_is_reported_and_exits_with_2(run, tmp_path, output_format):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: wrong\nclass: gpu\nsm_count: 3\n", encoding="utf-8")
    ran = run("devices", "validate", wrong, "--format", output_format)
    assert ran.code == 2
    assert "sm_count" in ran.out
    assert "Traceback" not in ran.err


def test_a_broken_profile_on_the_search_path_does_not_hide_the_others(run, tmp_path, monkeypatch):
    (tmp_path / "wrong.yaml").write_text("name: wrong\nclass: gpu\n", encoding="utf-8")
    monkeypatch.setenv("ACCELSIM_DEVICE_PATH", str(tmp_path))
    catalog.clear_cache()
    ran = run("devices", "list", "--class", "gpu", "--format", "json")
    assert ran.code == 0
    assert "wrong.yaml" in ran.err
    assert "t4" in {row["name"] for row in ran.json}


def test_files_that_cannot_be_read_are_named_with_the_reason(run, refused, tmp_path, monkeypatch):
    (tmp_path / "twice.yaml").write_text("name: twice\nname: again\n", encoding="utf-8")
    (tmp_path / "nameless.yaml").write_text("class: gpu\n", encoding="utf-8")
    missing = tmp_path / "missing"
    monkeypatch.setenv("ACCELSIM_DEVICE_PATH", f"{tmp_path}:{missing}")
    catalog.clear_cache()
    listed = run("devices", "list", "--format", "json")
    assert listed.code == 0
    checked = run("devices", "validate", "--format", "json")
    assert checked.code == 2
    wrong = {row["name"]: row["problem"] for row in checked.json if not row["valid"]}
    assert set(wrong) == {
        str(tmp_path / "twice.yaml"),
        str(tmp_path / "nameless.yaml"),
        str(missing),
    }
    assert "line 2: duplicate key 'name'" in wrong[str(tmp_path / "twice.yaml")]
    assert all(path in listed.err for path in wrong)
    assert "twice.yaml" in refused("estimate", "resnet-50", "--device", "nope")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: mine\n", "class is missing: expected cpu, gpu, fpga or asic"),
        ("name: mine\nclass: qpu\n", "class 'qpu' is not one of cpu, gpu, fpga, asic"),
        ("name: mine\nclass: gpu\nsm_count: 40\n", "line 3, sm_count: a figure needs its source"),
    ],
)
def test_frequent_mistakes_are_named_in_plain_words(run, tmp_path, text, words):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    ran = run("devices", "validate", path, "--format", "json")
    assert ran.code == 2
    assert words in ran.json[0]["problem"]


def test_unknown_names_offer_near_matches(refused):
    assert "t4" in refused("devices", "show", "t44")
    assert "resnet-50" in refused("workloads", "show", "resnet-500")
    assert "t4" in refused("offers", "list", "--device", "t4x")
    assert "spot" in refused("offers", "list", "--kind", "cheap")
    assert "nothing.yaml" in refused("workloads", "validate", "nothing.yaml")


def test_workloads_are_listed(run):
    rows = run("workloads", "list", "--format", "json").json
    assert [row["name"] for row in rows] == list(workload_names())
    assert run("workloads", "list", "--task", "none", "--format", "csv").code == 0


def test_a_workload_shows_its_size_and_published_figures(run):
    document = run("workloads", "show", "resnet50", "--operators", "--format", "json").json
    assert document["name"] == "resnet-50"
    assert (
        document["parameter_count"] == 25_557_032
    )  # torchvision ResNet50_Weights.IMAGENET1K_V1 num_params
    assert document["published"]
    assert all(check["agrees"] for check in document["published"])
    matrix = [group for group in document["operators"] if group["kind"] in {"conv", "gemm"}]
    assert sum(group["flop"] for group in matrix) == pytest.approx(document["flop"], rel=1e-12)
    rows = run("workloads", "show", "resnet-50", "--operators", "--format", "csv").rows
    assert len(rows) == len(document["operators"])
    assert "layer1" in run("workloads", "show", "resnet-50", "--operators").out


def test_a_workload_that_differs_from_its_published_figures_exits_with_2(run, tmp_path):
    path = tmp_path / "wrong.yaml"
    text = (data_root() / "workloads" / "resnet-50.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("25557032", "25957032"), encoding="utf-8")
    assert text != path.read_text(encoding="utf-8")
    ran = run("workloads", "validate", path)
    assert ran.code == 2
    assert "DIFFERS" in ran.out
    right = data_root() / "workloads" / "resnet-50.yaml"
    rows = run("workloads", "validate", right, "--format", "csv").rows
    assert {row["agrees"] for row in rows} == {"true"}


def test_offers_are_filtered(run):
    rows = run(
        "offers",
        "list",
        "--device",
        "T4",
        "--provider",
        "aws",
        "--kind",
        "spot",
        "--format",
        "json",
    ).json
    assert rows
    assert {(row["device"], row["provider"], row["kind"]) for row in rows} == {
        ("t4", "aws", "spot")
    }
    for row in rows:
        assert row["usd_per_unit_hour"] == pytest.approx(
            row["spot_usd_per_hour"] / row["device_count"]
        )
        assert row["source"]
    regions = {row["region"] for row in rows}
    one = run("offers", "list", "--device", "t4", "--region", min(regions), "--format", "json").json
    assert {row["region"] for row in one} == {min(regions)}


def test_all_offers_are_listed_with_unknown_prices_empty(run):
    rows = run("offers", "list", "--format", "csv").rows
    assert len(rows) == len(PriceBook.load())
    assert any(row["spot_usd_per_hour"] == "" for row in rows)
    assert not any(row["on_demand_usd_per_hour"] == "0" for row in rows)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("offers", "list", "--provider", "awss"), "Did you mean aws"),
        (("offers", "list", "--region", "us-east-11"), "us-east-1"),
        (("devices", "list", "--vendor", "nvida"), "Did you mean NVIDIA"),
        (("devices", "show", "./t4"), "--device-file"),
        (("accuracy", "--device", "t44"), "Did you mean t4"),
        (("workloads", "show", "./models/resnet-50"), "a path that ends in .yaml"),
        (("workloads", "show", "models/vision/resnet-50"), "a path that ends in .yaml"),
        (("workloads", "show", "microsoft/resnet-5O"), "Did you mean resnet-50"),
        (("workloads", "show", "x" * 5000), "Unknown workload 'xxx"),
        (("estimate", "resnet-50", "-d", "t4", "--batches", "0"), "above 0"),
        (
            (
                "estimate",
                "resnet-50",
                "-d",
                "t4",
                "--usd-per-hour",
                "3",
                "--offer",
                "aws/us-east-1/g4dn.xlarge",
            ),
            "Give one of them",
        ),
    ],
)
def test_a_slip_is_named_with_what_was_meant(refused, command, says):
    assert says in refused(*command)


def test_a_folder_is_not_a_workload(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert "a path that ends in" in refused("workloads", "show", "models")


def test_prices_of_ones_own_come_before_the_shipped_ones(run, refused, tmp_path, monkeypatch):
    path = tmp_path / "contract.csv"
    path.write_text("device,on_demand_usd_per_hour,source\nt4,0.05,contract\nl4,99,contract\n")
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(path))
    assert "contract" in {
        row["source"] for row in run("offers", "list", "-d", "t4", "--format", "json").json
    }
    ours = run("estimate", "resnet-18", "-d", "t4", "--format", "json").json
    assert (ours["offer"], ours["usd_per_hour"]) == ("user/any/t4", 0.05)
    dear = run("estimate", "resnet-18", "-d", "l4", "--format", "json").json
    assert (dear["offer"], dear["usd_per_hour"]) == ("user/any/l4", 99)
    monkeypatch.setenv("ACCELSIM_PRICE_PATH", str(tmp_path / "none.csv"))
    assert "none.csv: cannot be read" in refused("estimate", "resnet-18", "-d", "t4")
