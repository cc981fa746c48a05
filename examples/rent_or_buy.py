"""Rent or buy eight H100: from which use on does a node of one's own pay?

Price of the node: 8 H100 with 400 Gb/s network cards, 310,000 to 317,000 USD (quotes, August 2024,
Thinkmate); 10.2 kW at full load (NVIDIA DGX H100 datasheet); electricity 0.10 USD/kWh, PUE 1.3,
space 150 USD a kW and month and half an engineer are estimates. `rent_or_buy.yaml` asks the same of
20 fine-tunings a month.
"""

import math
from pathlib import Path

import accelsim
from accelsim.economics.eligible import OfferRule
from accelsim.economics.ownership import OwnedHardware, rent_or_buy_fraction

NODE = OwnedHardware(
    price_usd=313_500,
    life_years=4,
    busy_power_w=10_200,
    idle_power_w=2_000,
    electricity_usd_per_kwh=0.10,
    pue_ratio=1.3,
    residual_fraction=0.1,
    space_usd_per_kw_month=150,
    staff_usd_per_year=60_000,
)
#: Spot prices of any age; of those older than 30 days none is chosen otherwise.
ANY_AGE = OfferRule(spot_age_days=math.inf)


def main() -> None:
    """Print the cost of an hour of work, owned and rented."""
    book = accelsim.PriceBook.load()
    for used in (0.2, 0.4, 0.6, 0.8, 1.0):
        cost = NODE.cost(used)
        print(f"used {used:4.0%} of the time: {cost.usd_per_used_hour:6.2f} $ an hour, owned")
    for kind in ("on_demand", "spot"):
        quote = book.cheapest("h100-sxm-80gb", kind, device_count=8, rule=ANY_AGE)
        if quote is None:
            print(f"{kind}: no price is known")
            continue
        rent = quote.usd_per_hour(8) or 0.0
        share = rent_or_buy_fraction(NODE, rent)
        pays = "renting is cheaper at any" if share is None else f"owning pays from {share:.0%} on"
        print(f"{quote.quote_id}: {rent:.2f} $ an hour; {pays}")
    print(accelsim.plan(Path(__file__).with_suffix(".yaml")).reason)


if __name__ == "__main__":
    main()
