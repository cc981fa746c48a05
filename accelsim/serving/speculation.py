"""Tokens guessed ahead and checked in one step: how many, how often right, what guesses them."""

from __future__ import annotations

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import of_parts


@frozen
class Speculation:
    """Tokens guessed ahead and checked in one step.

    Attributes:
        tokens: Tokens guessed per step; 0 for no speculation.
        acceptance_fraction: Chance that a guess is right, each given those before it.
        draft: Model that guesses: its name, or `OWN_LAYERS` for the model's own layers of
            multi-token prediction; None for guesses that take no model (look-up of n-grams).
    """

    tokens: int
    acceptance_fraction: float
    draft: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no speculation.

        Raises:
            InvalidValueError: Naming the field.
        """
        is_none = self.tokens == 0 and self.acceptance_fraction == 0
        if not (is_none or 1 <= self.tokens <= 64):
            raise InvalidValueError("speculative tokens", self.tokens, "1 to 64, or none")
        if not 0 <= self.acceptance_fraction <= 1:
            raise InvalidValueError("acceptance", self.acceptance_fraction, "0 to 1")

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a step adds: (1 - a^(k+1)) / (1 - a) (Leviathan et al., ICML 2023,
        equation 1).
        """
        a, k = self.acceptance_fraction, self.tokens
        return k + 1.0 if a == 1 else (1 - a ** (k + 1)) / (1 - a)


#: As a draft: the layers of multi-token prediction that a model was published with.
OWN_LAYERS = "mtp"
#: What engines' documentation turns on for a model with such layers: one guess a step (vLLM,
#: features/speculative_decoding/mtp: "a good default to start with"), as often right as
#: DeepSeek-V3's second token (arXiv:2412.19437, section 5.4.3: 85 to 90 %).
USUAL_GUESSES = Speculation(1, 0.85, OWN_LAYERS)
_NO_GUESSES = Speculation(0, 0.0)


def speculation(name: str, text: str) -> Speculation:
    """Guesses as ``4:0.8:llama-3.2-1b``, or none."""
    if text == "none":
        return _NO_GUESSES
    pattern = "(?P<tokens>[^:]+):(?P<acceptance_fraction>[^:]+):?(?P<draft>.*)"
    form = "TOKENS:ACCEPTANCE or TOKENS:ACCEPTANCE:DRAFT_MODEL, such as 4:0.8:llama-3.2-1b, or none"
    return of_parts(Speculation, pattern, form)(name, text)
