"""State-space language models: Mamba-2 (Dao and Gu, ICML 2024, arXiv:2405.21060).

Module names as in Hugging Face's ``Mamba2ForCausalLM``.
"""

from __future__ import annotations

from functools import partial

from pydantic import model_validator

from accelsim.workloads.builder import GraphBuilder, Tensor
from accelsim.workloads.families.linear_attention import StateSpace, state_space
from accelsim.workloads.families.transformer import new_token_count, token_ids
from accelsim.workloads.family_parameters import Count, Depth
from accelsim.workloads.model import PassShape, family
from accelsim.workloads.operator import Phase


class StateSpaceParameters(StateSpace):
    """Parameters of a Mamba-2 model.

    Attributes:
        vocab_size: Rows of the embedding table.
        hidden_size: Width.
        layers: Mixers.
        tied_embeddings: Whether the logits matrix is the embedding table.
    """

    vocab_size: Count
    hidden_size: Count
    layers: Depth
    tied_embeddings: bool = False

    @model_validator(mode="after")
    def _groups_divide(self) -> StateSpaceParameters:
        if self.heads % self.groups:
            raise ValueError(f"heads = {self.heads} is no multiple of groups = {self.groups}")
        return self


@family("state-space", StateSpaceParameters, autoregressive=True, sequence=True)
def write_state_space(b: GraphBuilder, p: StateSpaceParameters, shape: PassShape) -> None:
    """Write a Mamba-2 model; DECODE updates states, whose size no context changes."""
    length = new_token_count(b, shape)
    x = b.embedding(
        token_ids(b, shape.batch, length), p.vocab_size, p.hidden_size, at="backbone.embeddings"
    )
    paths = [f"backbone.layers.{index}" for index in range(p.layers)]
    x = b.repeated(x, paths, partial(_layer, b, mixer=p))
    x = b.rms_norm(x, at="backbone.norm_f")
    if b.phase is Phase.PREFILL:
        x = b.part(x, shape.batch, 1, p.hidden_size)
    b.linear(x, p.vocab_size, bias=False, tied=p.tied_embeddings, at="lm_head")


def _layer(b: GraphBuilder, x: Tensor, mixer: StateSpace) -> Tensor:
    return b.add(x, state_space(b, b.rms_norm(x, at="norm"), mixer))
