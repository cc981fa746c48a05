"""Which offers may be chosen: classes of providers, and the age of a spot price.

Classes are data (``providers.csv``, each with its source). A spot price is the outcome of an
auction of its day, so that an old one is shown but not chosen; a marketplace lists hardware of
strangers, whose price and availability nobody answers for, and is chosen where it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache

from accelsim.economics.dates import age_days, today
from accelsim.economics.offer import Offer, PriceKind
from accelsim.errors import InvalidValueError
from accelsim.files.csvfile import csv_rows
from accelsim.files.prices import prices_folder
from accelsim.frozen import frozen
from accelsim.option import words

#: Classes of providers; one that is in no list is ``unlisted``.
PROVIDER_CLASSES = ("hyperscaler", "specialised", "marketplace")
UNLISTED = "unlisted"
#: Age from which a spot price is not chosen: clouds change them daily to monthly (estimate, after
#: AWS's history of spot prices, which keeps 90 days).
SPOT_AGE_DAYS = 30.0
_MARKETPLACE = "marketplace"
_ANY = "any"


@frozen
class OfferRule:
    """What an offer must be to be chosen without being named.

    Attributes:
        provider_classes: Classes of providers; all but marketplaces where empty.
        spot_age_days: Oldest spot price, days; one without a date is of any age.

    Raises:
        InvalidValueError: If there is no such class, or the age is below 0.
    """

    provider_classes: tuple[str, ...] = ()
    spot_age_days: float = SPOT_AGE_DAYS

    def __post_init__(self) -> None:
        classes = (*PROVIDER_CLASSES, UNLISTED, _ANY)
        for name in self.provider_classes:
            if name not in classes:
                raise InvalidValueError("provider_class", name, "one of " + ", ".join(classes))
        if not self.spot_age_days >= 0:
            raise InvalidValueError("spot_age_days", self.spot_age_days, "a number of days >= 0")

    def allowed(
        self, offers: Iterable[Offer], kind: PriceKind, provider: str | None = None
    ) -> tuple[list[Offer], tuple[str, ...]]:
        """The offers that may be chosen, and what is said of the others.

        Args:
            offers: Offers with a price of the kind.
            kind: The price kind.
            provider: Provider asked for by name; a marketplace's is asked for with it.
        """
        allowed: list[Offer] = []
        classes: Counter[str] = Counter()
        ages: list[int] = []
        for offer in offers:
            of_class = provider_class(offer.provider, offer.instance)
            age = age_days(offer.spot_as_of, today()) if kind == "spot" else None
            if not self._takes(of_class, provider):
                classes[of_class] += 1
            elif age is not None and age > self.spot_age_days:
                ages.append(age)
            else:
                allowed.append(offer)
        return allowed, tuple(_left_out(classes, ages, self.spot_age_days))

    def _takes(self, of_class: str, provider: str | None) -> bool:
        if _ANY in self.provider_classes or of_class in self.provider_classes:
            return True
        if self.provider_classes:
            return False
        return of_class != _MARKETPLACE or provider_class(provider or "") == _MARKETPLACE


def _left_out(classes: Counter[str], ages: list[int], limit: float) -> Iterable[str]:
    for name, count in sorted(classes.items()):
        prices = "price" if count == 1 else "prices"
        yield f"{count} {prices} of class {name} not chosen: --provider-class {name} takes such"
    if ages:
        prices = "price is" if len(ages) == 1 else "prices are"
        yield (
            f"{len(ages)} spot {prices} older than {limit:g} days and not chosen, the newest "
            f"{min(ages)} days: --spot-age-days {min(ages)} takes it"
        )


def rule_of(classes: str | None, spot_age_days: float | None) -> OfferRule:
    """A rule as options give it.

    Args:
        classes: Classes between commas; the default where None.
        spot_age_days: Days; the default where None.

    Raises:
        InvalidValueError: If there is no such class, or the age is below 0.
    """
    names = () if classes is None else words("provider_class", classes.lower())
    if classes is not None and not names:
        raise InvalidValueError("provider_class", classes, "one of " + ", ".join(PROVIDER_CLASSES))
    return OfferRule(names, SPOT_AGE_DAYS if spot_age_days is None else spot_age_days)


@cache
def provider_class(provider: str, instance: str = "") -> str:
    """Class of who sells an instance.

    Args:
        provider: Name of the provider.
        instance: Its instance, as one may sell hardware of its own and of others.
    """
    for name, pattern, of_class in _listed():
        if name == provider.lower() and fnmatchcase(instance, pattern):
            return of_class
    return UNLISTED


@cache
def _listed() -> tuple[tuple[str, str, str], ...]:
    """Provider, pattern of instances and class, the first that matches counts."""
    rows = csv_rows(prices_folder() / "providers.csv")
    return tuple((row["provider"], row["instance"], row["class"]) for _, row in rows)
