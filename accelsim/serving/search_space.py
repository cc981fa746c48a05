"""What a search for the cheapest way to serve tries."""

from __future__ import annotations

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.option import check_ranges, integers, option, words
from accelsim.serving.options import PrefillOptions

_SEQS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_TOKENS = (1024, 2048, 4096, 8192, 16_384)


@frozen
class SearchSpace:
    """What is tried."""

    devices: tuple[str, ...] = option(
        "Devices to try. Default: every GPU with an on-demand offer.",
        (),
        "D,D,...",
        "--devices -d",
        words,
    )
    precisions: tuple[str, ...] = option(
        "Formats to try. Default: the model's usual one.", (), "P,P,...", parse=words
    )
    tp: tuple[int, ...] = option(
        "Tensor parallelism: ranks that share heads and columns.",
        (1, 2, 4, 8),
        "N,N,...",
        parse=integers,
    )
    pp: tuple[int, ...] = option("Pipeline stages.", (1,), "N,N,...", parse=integers)
    ep: tuple[int, ...] = option(
        "Expert parallelism: ranks that share the experts. Default for a mixture: 1 and tp.",
        (),
        "N,N,...",
        parse=integers,
    )
    max_seqs: tuple[int, ...] = option(
        "Limits of sequences at once to try.", _SEQS, "N,N,...", parse=integers
    )
    max_batch_tokens: tuple[int, ...] = option(
        "Limits of tokens per step to try.", _TOKENS, "N,N,...", parse=integers
    )
    together: bool = option(
        "Leave out layouts with prompts on replicas of their own.", False, flags="--no-split"
    )
    kv_link: str = option(
        "Link of the catalogue over which caches move to replicas that generate.",
        PrefillOptions().link,
        "NAME",
    )
    most_devices: int | None = option(
        "Most devices of a deployment.", None, "N", "--max-devices", within=(1, 1_000_000)
    )

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges(self)
        for name in ("tp", "pp", "ep", "max_seqs", "max_batch_tokens"):
            values = getattr(self, name)
            if any(value < 1 for value in values) or (not values and name != "ep"):
                raise InvalidValueError(name, values, "one or more whole numbers >= 1")
