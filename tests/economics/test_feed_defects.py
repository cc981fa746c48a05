"""One test for each known defect of public price feeds, and for what the checks must leave
alone.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.economics.feeds.ingest import DeviceRule, ingest

T4_RULE = DeviceRule("*", "*", "T4", "t4")


def row(**changes):
    base = {
        "provider": "aws",
        "region": "us-east-1",
        "instance_type": "g4dn.xlarge",
        "vcpus": "4.0",
        "memory_gib": "16.0",
        "accelerator_name": "T4",
        "accelerator_count": "1.0",
        "price_usd_per_h": "0.526",
        "spot_price_usd_per_h": "0.1609",
        "as_of": "2026-07-20",
        "source": "feed@1",
        "note": "",
    }
    return {**base, **changes}


def only_offer(result):
    assert not result.refusals
    assert len(result.offers) == 1
    return result.offers[0]


def corrected_fields(result):
    return [finding.field for finding in result.corrections]


def test_clean_row_passes_unchanged():
    result = ingest([row()], [T4_RULE])
    offer = only_offer(result)
    assert result.corrections == ()
    assert offer.offer_id == "aws/us-east-1/g4dn.xlarge"
    assert (offer.device, offer.device_count, offer.vcpu_count) == ("t4", 1, 4)
    assert (offer.on_demand_usd_per_hour, offer.spot_usd_per_hour) == (0.526, 0.1609)
    assert offer.memory_bytes == 16 * 2**30
    assert offer.as_of == "2026-07-20"


def test_tpu_sentinel_is_refused():
    tpu = row(
        provider="gcp",
        instance_type="tpu-v4-4chip",
        accelerator_name="TPU-V4",
        price_usd_per_h="700.0",
        spot_price_usd_per_h="",
    )
    result = ingest([tpu])
    assert result.offers == ()
    assert "700.0" in result.refusals[0].reason


def test_seven_hundred_dollars_is_a_price_where_it_is_not_a_tpu():
    assert only_offer(ingest([row(price_usd_per_h="700.0")])).on_demand_usd_per_hour == 700


def test_spot_above_on_demand_becomes_unknown():
    result = ingest([row(spot_price_usd_per_h="0.6")])
    offer = only_offer(result)
    assert offer.spot_usd_per_hour is None
    assert offer.spot_as_of == ""
    assert offer.on_demand_usd_per_hour == 0.526
    assert corrected_fields(result) == ["spot_usd_per_hour"]


def test_spot_equal_to_on_demand_is_kept():
    assert only_offer(ingest([row(spot_price_usd_per_h="0.526")])).spot_usd_per_hour == 0.526


def test_spot_of_exactly_a_tenth_is_a_placeholder():
    result = ingest([row(spot_price_usd_per_h="0.0526")])
    assert only_offer(result).spot_usd_per_hour is None
    assert "tenth" in result.corrections[0].reason


def test_zero_means_unknown():
    result = ingest([row(spot_price_usd_per_h="0.00")])
    assert only_offer(result).spot_usd_per_hour is None
    assert corrected_fields(result) == ["spot_usd_per_hour"]


def test_zero_on_demand_without_spot_leaves_no_price():
    result = ingest([row(price_usd_per_h="0.0", spot_price_usd_per_h="")])
    assert result.offers == ()
    assert result.refusals[0].reason == "no price is known"


def test_empty_on_demand_price_is_unknown_not_zero():
    offer = only_offer(ingest([row(price_usd_per_h="")]))
    assert offer.on_demand_usd_per_hour is None
    assert offer.spot_usd_per_hour == 0.1609


def test_empty_prices_are_refused():
    result = ingest([row(price_usd_per_h="", spot_price_usd_per_h="")])
    assert result.offers == ()
    assert result.refusals[0].instance == "g4dn.xlarge"


def test_key_with_trailing_blank_is_the_same_instance():
    result = ingest([row(instance_type="g4dn.xlarge ")], [T4_RULE])
    assert only_offer(result).offer_id == "aws/us-east-1/g4dn.xlarge"
    assert corrected_fields(result) == ["instance"]


def test_column_name_with_trailing_blank_is_the_same_column():
    blank = row()
    blank["price_usd_per_h "] = blank.pop("price_usd_per_h")
    assert only_offer(ingest([blank])).on_demand_usd_per_hour == 0.526


def test_column_given_twice_is_refused():
    assert ingest([{**row(), "price_usd_per_h ": "9"}]).refusals


@pytest.mark.parametrize("typo", ["us-eats-1", "us-east1", "US-EAST-1"])
def test_misspelt_region_is_corrected(typo):
    regions = {"aws": ["us-east-1", "eu-west-1", "ap-south-1"]}
    assert only_offer(ingest([row(region=typo)], regions=regions)).region == "us-east-1"


def test_misspelt_region_with_two_readings_is_refused():
    result = ingest([row(region="us-wast-1")], regions={"aws": ["us-east-1", "us-west-1"]})
    assert result.offers == ()
    assert "us-west-1 or us-east-1" in result.refusals[0].reason


@pytest.mark.parametrize("unlisted", ["us-east-3", "us-east-11"])
def test_region_with_another_number_is_not_a_misspelling(unlisted):
    result = ingest([row(region=unlisted)], regions={"aws": ["us-east-1", "us-west-1"]})
    assert result.offers == ()


def test_unrecognisable_region_is_refused():
    result = ingest([row(region="atlantis")], regions={"aws": ["us-east-1"]})
    assert "atlantis" in result.refusals[0].reason


def attached(count=1):
    return row(
        provider="gcp",
        region="us-central1",
        instance_type=f"attach-t4-x{count}",
        vcpus="",
        memory_gib="",
        accelerator_count=str(count),
        price_usd_per_h=str(0.35 * count),
        spot_price_usd_per_h=str(0.11 * count),
        note="attachable GPU: N1 host VM billed separately",
    )


@pytest.mark.parametrize("count", ["", "0"])
def test_an_accelerator_without_its_host_and_without_a_count_is_no_cpu_offer(count):
    found = ingest([attached() | {"accelerator_count": count}, host()])
    assert [offer.instance for offer in found.offers] == ["n1-standard-4"]
    (refusal,) = found.refusals
    assert (refusal.field, refusal.instance) == ("device_count", "attach-t4-x1")


def host(vcpus=4):
    return row(
        provider="gcp",
        region="us-central1",
        instance_type=f"n1-standard-{vcpus}",
        accelerator_name="",
        accelerator_count="0",
        vcpus=str(vcpus),
        price_usd_per_h=str(0.0475 * vcpus),
        spot_price_usd_per_h=str(0.0168 * vcpus),
    )


def test_gpu_price_without_its_host_is_refused():
    result = ingest([attached()])
    assert result.offers == ()
    assert "host" in result.refusals[0].reason


@pytest.mark.parametrize("count", [1, 2, 4])
def test_gpu_price_gets_its_host(count):
    result = ingest([attached(count), host(4 * count)])
    offer = next(offer for offer in result.offers if offer.device_count)
    assert offer.instance == f"n1-standard-{4 * count}+t4-x{count}"
    assert math.isclose(offer.on_demand_usd_per_hour, count * (0.35 + 4 * 0.0475), abs_tol=1e-6)
    assert math.isclose(offer.spot_usd_per_hour, count * (0.11 + 4 * 0.0168), abs_tol=1e-6)
    assert offer.vcpu_count == 4 * count


def test_two_sources_two_prices_keep_the_newer():
    old = row(price_usd_per_h="0.6", as_of="2024-12-23", source="old@1")
    for rows in ([old, row()], [row(), old]):
        result = ingest(rows)
        assert [offer.on_demand_usd_per_hour for offer in result.offers] == [0.526]
        assert [finding.source for finding in result.refusals] == ["old@1"]
        assert "another on-demand price" in result.refusals[0].reason


def test_newer_source_takes_an_unknown_spot_price_from_the_older():
    old = row(as_of="2024-12-23", source="old@1")
    result = ingest([row(spot_price_usd_per_h=""), old])
    assert result.offers[0].spot_usd_per_hour == 0.1609
    assert result.offers[0].spot_as_of == "2024-12-23"


@pytest.mark.parametrize("slipped", ["5.26", "0.0526"])
def test_slipped_decimal_point_is_refused(slipped):
    regions = ["us-east-1", "us-east-2", "eu-west-1", "ap-south-1"]
    rows = [row(region=region, spot_price_usd_per_h="") for region in regions]
    rows[1]["price_usd_per_h"] = slipped
    result = ingest(rows)
    assert [offer.region for offer in result.offers] == ["ap-south-1", "eu-west-1", "us-east-1"]
    assert "decimal" in result.refusals[0].reason


def test_price_far_from_all_others_of_its_accelerator_is_refused():
    rows = [row(provider=provider, spot_price_usd_per_h="") for provider in ("a", "b", "c")]
    rows.append(row(provider="d", price_usd_per_h="0.03", spot_price_usd_per_h=""))
    assert [finding.provider for finding in ingest(rows).refusals] == ["d"]


def test_threefold_price_differences_are_kept():
    prices = ["0.526", "1.5", "0.35", "0.526"]
    rows = [
        row(region=f"r{i}", price_usd_per_h=p, spot_price_usd_per_h="")
        for i, p in enumerate(prices)
    ]
    assert len(ingest(rows).offers) == 4


def test_licence_in_the_price_of_a_cpu_instance_is_refused():
    def size(vcpus, price):
        return row(
            provider="azure",
            region="eastus",
            instance_type=f"Standard_D{vcpus}as_v5",
            vcpus=str(vcpus),
            accelerator_name="",
            accelerator_count="0",
            price_usd_per_h=str(price),
            spot_price_usd_per_h="",
        )

    result = ingest(
        [size(8, 0.344), size(16, 0.688), size(64, 5.696)]
    )  # 5.696 = 64 (0.043 + 0.046)
    assert [offer.vcpu_count for offer in result.offers] == [16, 8]
    assert "licence" in result.refusals[0].reason


def test_committed_prices_are_read_from_the_note():
    offer = only_offer(ingest([row(note="1y=0.3310 3y=0.2364 USD/h (month/730)")]))
    assert (offer.committed_1y_usd_per_hour, offer.committed_3y_usd_per_hour) == (0.331, 0.2364)
    assert offer.note == ""


@pytest.mark.parametrize(
    ("rounded", "exact"), [("0.167", 1 / 6), ("0.333", 1 / 3), ("0.25", 0.25), ("0.37", 0.37)]
)
def test_rounded_fractions_of_a_device(rounded, exact):
    assert only_offer(ingest([row(accelerator_count=rounded)])).device_count == pytest.approx(
        exact, abs=1e-12
    )


@pytest.mark.parametrize(
    ("as_of", "iso"),
    [
        ("2026-07-20", "2026-07-20"),
        ("2026-07", "2026-07"),
        ("skypilot v5 snapshot (2024)", "2024"),
        ("skypilot v8 (2025-26 snapshot)", "2025/2026"),
        ("recently", ""),
    ],
)
def test_dates_become_iso(as_of, iso):
    assert only_offer(ingest([row(as_of=as_of)])).as_of == iso


@pytest.mark.parametrize("bad", ["-1", "nan", "inf", "1e400", "cheap", "1_0", "0x10"])
def test_prices_that_are_no_prices_are_refused(bad):
    result = ingest([row(price_usd_per_h=bad)])
    assert result.offers == ()
    assert len(result.refusals) == 1


@pytest.mark.parametrize("region", ["{", "---", "·"])
def test_a_region_without_letters_or_digits_refuses_its_row_alone(region):
    result = ingest([row(), row(region=region)])
    assert len(result.offers) == 1
    assert "has no letter and no digit" in result.refusals[0].reason


CELL = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", " ", "0", "0.00", "700.0", "nan", "-3", "1e9", "4", "T4", "aws", "1y=0.1 3y= USD/h"]
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.fixed_dictionaries(dict.fromkeys(row(), CELL)), max_size=4))
def test_any_rows_become_valid_offers_or_findings(rows):
    rows = [row(), *rows]
    result = ingest(rows)
    assert len(result.offers) + len(result.refusals) == len(rows)
    assert all(
        price is None or 0 < price <= 1e6
        for offer in result.offers
        for price in (offer.on_demand_usd_per_hour, offer.spot_usd_per_hour)
    )
    ids = [offer.offer_id for offer in result.offers]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)


def test_a_row_with_more_fields_than_the_header_is_refused():
    overflowing = {**row(), None: ["surplus"]}  # what csv.DictReader makes of it
    result = ingest([overflowing])
    assert result.offers == ()
    assert "more fields than the header" in result.refusals[0].reason


def test_a_short_row_leaves_its_last_fields_unknown():
    offer = only_offer(ingest([row(spot_price_usd_per_h=None, note=None)]))
    assert offer.spot_usd_per_hour is None
    assert offer.note == ""


@pytest.mark.parametrize(
    ("provider", "instance", "stated", "vcpus"),
    [
        ("azure", "Standard_D16as_v5", "", 16),
        ("azure", "Standard_D16as_v5", "8", 8),
        ("azure", "Basic_A1", "", None),
        ("aws", "Standard_D16as_v5", "", None),
    ],
)
def test_azure_names_carry_the_vcpus_a_feed_leaves_out(provider, instance, stated, vcpus):
    result = ingest([row(provider=provider, instance_type=instance, vcpus=stated)])
    assert only_offer(result).vcpu_count == vcpus
    assert ("vcpu_count" in corrected_fields(result)) is (stated == "" and vcpus is not None)


def test_what_no_offer_may_hold_is_refused_with_its_field_and_reason():
    result = ingest([row(price_usd_per_h="1000001", spot_price_usd_per_h="")])
    assert result.offers == ()
    (refusal,) = result.refusals
    assert (refusal.field, refusal.value) == ("on_demand_usd_per_hour", "1000001.0")
    assert "at most 1,000,000" in refusal.reason


def cpu_row(provider, instance, vcpus, usd_per_vcpu):
    return row(
        provider=provider,
        instance_type=instance,
        vcpus=str(vcpus),
        accelerator_name="",
        accelerator_count="0",
        price_usd_per_h=str(vcpus * usd_per_vcpu),
        spot_price_usd_per_h="",
    )


def test_a_family_ends_at_the_dot_on_aws_alone():
    """Elsewhere a dot separates words: VM.Standard.E4 and VM.Standard.A1 are two families at two
    prices.
    """
    others = [
        cpu_row("oci", "VM.Standard.A1", 4, 0.010),
        cpu_row("oci", "VM.Standard.E4", 4, 0.025),
    ]
    assert len(ingest(others).offers) == 2
    one = [cpu_row("aws", "m5.large", 2, 0.048), cpu_row("aws", "m5.metal", 96, 0.094)]
    result = ingest(one)
    assert [offer.instance for offer in result.offers] == ["m5.large"]
    assert "licence" in result.refusals[0].reason
    assert len(ingest([one[0], cpu_row("aws", "c5.metal", 96, 0.094)]).offers) == 2


@pytest.mark.parametrize(("ratio", "kept"), [(1.24, 2), (1.26, 1)])
def test_prices_within_a_family_may_differ_by_a_quarter(ratio, kept):
    rows = [cpu_row("aws", "m5.large", 2, 0.048), cpu_row("aws", "m5.xlarge", 4, 0.048 * ratio)]
    assert len(ingest(rows).offers) == kept


@pytest.mark.parametrize(("factor", "kept"), [(9.9, 4), (10.1, 3), (1 / 9.9, 4), (1 / 10.1, 3)])
def test_ten_times_the_median_is_a_slipped_point(factor, kept):
    regions = ["us-east-1", "us-east-2", "eu-west-1", "ap-south-1"]
    rows = [row(region=region, spot_price_usd_per_h="") for region in regions]
    rows[1]["price_usd_per_h"] = str(0.526 * factor)
    assert len(ingest(rows).offers) == kept


def test_two_prices_have_no_majority():
    rows = [
        row(region="r1", spot_price_usd_per_h=""),
        row(region="r2", price_usd_per_h="9", spot_price_usd_per_h=""),
    ]
    assert len(ingest(rows).offers) == 2


@pytest.mark.parametrize(
    ("newer", "older", "vcpus", "memory_gib"),
    [("", "4.0", 4, 16), ("8", "4.0", 8, 16), ("", "", None, 16)],
)
def test_newer_source_takes_the_sizes_it_does_not_state(newer, older, vcpus, memory_gib):
    old = row(vcpus=older, as_of="2024-12-23", source="old@1")
    result = ingest([row(vcpus=newer, memory_gib=""), old])
    assert result.offers[0].vcpu_count == vcpus
    assert result.offers[0].memory_bytes == memory_gib * 2**30
    assert ("vcpu_count" in corrected_fields(result)) is (newer == "" and older != "")


def test_a_newer_spot_price_replaces_an_older_one_and_says_which():
    newest = row(spot_price_usd_per_h="0.2", spot_as_of="2024-01-01")
    other = row(
        as_of="2025-01-01", source="old@1", spot_price_usd_per_h="0.15", spot_as_of="2025-06-01"
    )
    result = ingest([newest, other])
    assert result.offers[0].spot_usd_per_hour == 0.15
    assert result.offers[0].spot_as_of == "2025-06-01"
    correction = next(
        finding for finding in result.corrections if finding.field == "spot_usd_per_hour"
    )
    assert correction.value == "0.2"
    stale = row(
        as_of="2025-01-01", source="old@1", spot_price_usd_per_h="0.15", spot_as_of="2023-06-01"
    )
    assert ingest([newest, stale]).offers[0].spot_usd_per_hour == 0.2
    above = row(
        as_of="2025-01-01",
        source="old@1",
        price_usd_per_h="0.9",
        spot_price_usd_per_h="0.6",
        spot_as_of="2026-01-01",
    )
    assert (
        ingest([newest, above]).offers[0].spot_usd_per_hour == 0.2
    )  # above the newest on-demand price


@pytest.mark.parametrize(
    ("price", "words"), [("0.526", "the same"), ("0.6", "another"), ("", "another")]
)
def test_a_superseded_row_says_whether_the_prices_agree(price, words):
    old = row(price_usd_per_h=price, as_of="2024-12-23", source="old@1")
    assert f": {words} on-demand price" in ingest([row(), old]).refusals[0].reason
