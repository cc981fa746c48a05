"""Recurrent models, the sentence CNN, recommenders and trees against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelsim.catalog.workloads import workload
from accelsim.dtype import PRECISIONS
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.families.recommender import DlrmParameters
from accelsim.workloads.families.recurrent import RecurrentParameters, write_recurrent
from accelsim.workloads.model import PassShape
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.training import optimizer, training_graph

FP32 = PRECISIONS["fp32"]
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def lower(name, **sizes):
    return workload(name).lower(PassShape(**sizes), FP32)


def rows(graph, kind):
    return [graph.dimensions_of(row) for row in np.flatnonzero(graph.kind == kind)]


@settings(max_examples=30, deadline=None)
@given(
    cell=st.sampled_from(sorted(GATES)),
    hidden=st.integers(1, 64),
    width=st.integers(1, 64),
    steps=st.integers(1, 32),
    batch=st.integers(1, 4),
    bidirectional=st.booleans(),
)
def test_counts_equal_the_closed_form(cell, hidden, width, steps, batch, bidirectional):
    p = RecurrentParameters.model_validate(
        {
            "vocabulary": 11,
            "embedding": width,
            "layers": [{"cell": cell, "hidden": hidden, "bidirectional": bidirectional}],
            "outputs": 3,
            "output_at": "every",
            "steps": steps,
        }
    )
    b = GraphBuilder(FP32)
    write_recurrent(b, p, PassShape(batch=batch))
    directions = 1 + bidirectional
    matrix = directions * GATES[cell] * hidden * (width + hidden)
    assert b.parameter_totals.parameters == 11 * width + matrix + directions * 2 * GATES[
        cell
    ] * hidden + 3 * (directions * hidden + 1)
    assert b.build().model_flop == 2.0 * batch * steps * (matrix + 3 * directions * hidden)


@pytest.mark.parametrize("name", ["lstm-lm-large", "bilstm-imdb", "gru-shakespeare"])
def test_recurrent_flop_are_linear_in_steps(name):
    def recurrent_flop(steps):
        graph = lower(name, seq_len=steps).graph
        cells = np.isin(graph.kind, [OperatorKind.LSTM, OperatorKind.GRU])
        return graph.flop[cells].sum()

    assert recurrent_flop(60) == 3 * recurrent_flop(20)


def test_classifier_reads_the_last_step_only():
    assert rows(lower("bilstm-imdb", batch=5, seq_len=40).graph, OperatorKind.GEMM)[-1]["m"] == 5


def test_language_model_classifies_every_step():
    assert (
        rows(lower("lstm-lm-large", batch=5, seq_len=35).graph, OperatorKind.GEMM)[-1]["m"]
        == 5 * 35
    )


def test_translator_shares_one_embedding_and_attends_to_every_source_word():
    graph = lower("gnmt", batch=2, seq_len=30, target_len=20).graph
    assert len(rows(graph, OperatorKind.LSTM)) == 8
    context = rows(graph, OperatorKind.BATCHED_GEMM)[0]
    assert (context["batch"], context["m"], context["k"]) == (2, 20, 30)
    assert len(rows(graph, OperatorKind.EMBEDDING)) == 2


def test_transducer_joins_every_pair_of_frame_and_symbol():
    graph = lower("rnn-t", batch=2, seq_len=100, target_len=30).graph
    assert rows(graph, OperatorKind.GEMM)[-1]["m"] == 2 * 50 * 30
    assert len(rows(graph, OperatorKind.LSTM)) == 7


def test_sentence_cnn_flop():
    """Sum over windows of 2 x positions x window x 300 x 100, positions padded by window - 1."""
    words = 56
    convolutions = sum(2.0 * (words + w - 1) * w * 300 * 100 for w in (3, 4, 5))
    assert lower("text-cnn").graph.model_flop == convolutions + 2.0 * 300 * 2


def test_dlrm_multiplies_every_pair():
    """Criteo: 13-512-256-128 below, 479-1024-1024-512-256-1 above, 27 vectors of 128 between."""
    graph = lower("dlrm-mlperf").graph
    below = 13 * 512 + 512 * 256 + 256 * 128
    above = (128 + 27 * 26 // 2) * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert graph.model_flop == 2.0 * (below + above + 27 * 27 * 128)
    assert len(rows(graph, OperatorKind.EMBEDDING_BAG)) == 26


def test_dlrm_reads_rows_not_tables():
    lowered = lower("dlrm-mlperf", batch=64)
    assert lowered.graph.total_bytes < 0.001 * 4 * lowered.parameter_count


def test_boosted_trees_visit_depth_nodes_of_every_tree():
    graph = lower("gbdt-higgs", batch=1000).graph
    assert rows(graph, OperatorKind.TREE_ENSEMBLE) == [
        {"rows": 1000, "features": 28, "trees": 500, "depth": 8}
    ]
    assert graph.total_flop == 1000 * 500 * 9
    assert graph.model_flop == 0


def test_boosted_trees_train_on_histograms():
    forward = lower("gbdt-higgs", batch=1000)
    graph = training_graph(forward.graph, forward.parameter_count, 1, FP32, optimizer("sgd"))
    assert rows(graph, OperatorKind.TREE_HISTOGRAM)[0]["bins"] == 256


def test_cross_layers_have_two_thin_matrices_each():
    graph = lower("dlrm-v2-mlperf").graph
    joined = 27 * 128
    cross = [
        graph.flop[i]
        for i, path in enumerate(graph.path)
        if "cross" in path and graph.kind[i] == OperatorKind.GEMM
    ]
    assert sum(cross) == 3 * 2 * 2.0 * joined * 512
    lookups = sum(row["lookups"] for row in rows(graph, OperatorKind.EMBEDDING_BAG))
    assert lookups == 214


def test_lookup_counts_must_match_the_tables():
    data = workload("dlrm-mlperf").parameters.model_dump()
    with pytest.raises(ValueError, match="one per table"):
        DlrmParameters.model_validate(data | {"lookups_per_table": (1, 2)})


def test_one_hot_tokens_need_no_table():
    graph = lower("lstm-nietzsche", batch=3, seq_len=40).graph
    assert rows(graph, OperatorKind.EMBEDDING) == []
    assert rows(graph, OperatorKind.LSTM)[0]["input_size"] == 57


def test_mean_embedding_reduces_over_words():
    graph = lower("fasttext-imdb", batch=3, seq_len=400).graph
    assert rows(graph, OperatorKind.REDUCTION) == [{"rows": 3 * 50, "columns": 400, "inner": 0}]
