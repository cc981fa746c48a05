"""Suites of training runs: rows become models, clusters and plans; what is refused has a name."""

from __future__ import annotations

import pytest

from accelsim.errors import InvalidValueError, MissingDependencyError, UnknownNameError
from accelsim.scoreboard import score, scoreboard_dict, suite, suites, validate
from accelsim.scoreboard.names import cluster_of, workload_of
from tools.scoreboard import training_memory
from tools.scoreboard.training_frameworks import _scaled
from tools.scoreboard.training_mlperf import _batches, _metered
from tools.scoreboard.training_plans import gpt, model_flop

VTRAIN = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
)
#: Columns of Korthikanti et al. 2022, table 5, and the two rows of the 175B model.
KORTHIKANTI = (
    "table,model,heads,hidden,layers,TP,PP,interleave,gpus,global_batch,microbatch,seq,quantity,"
    "variant,measured\n"
    "T5,175B,96,12288,96,8,8,3,64,64,1,2048,iteration_time,full_recompute,18.13\n"
    "T5,175B,96,12288,96,8,8,3,64,64,1,2048,iteration_time,seqpar+selective,13.75\n"
    "T5,175B,96,12288,96,8,8,3,64,64,1,2048,MFU,seqpar+selective,51.4\n"
)
FSDP = (
    "Model,SeqLen (T),# GPUs,GPU,MicroBatchSize,GlobalBatchSize,Throughput (T/s),"
    "GlobalBatchSize (T),Sharding Strategy,Activation Checkpointing\n"
)
DIMENSIONS = "model,d_model,n_heads,n_layers,vocab\nmpt-7b,4096,32,32,50368\n"
MAXTEXT = "accelerator,n_slices,chips,model,seq_or_note,tflops_per_chip,tokens_s_device\n"
BRIDGE = "model,system,gpus,precision,gbs,mbs,seq,FSDP,TP,PP,CP,VP,EP,tokens_s_gpu\n"


@pytest.fixture
def scored(tmp_path):
    (tmp_path / "training").mkdir()

    def score(suite, **tables):
        for name, text in tables.items():
            (tmp_path / "training" / f"{name}.csv").write_text(text)
        return scoreboard_dict(validate([suite], tmp_path))["suites"][suite]

    return score


def test_a_published_run_of_175b_is_near_what_was_measured(scored):
    score = scored("training-published", korthikanti_2022=KORTHIKANTI)
    assert score["rows_answered"] == score["rows_asked"] == 2
    assert score["max_ape_fraction"] < 0.08


def test_vtrain_rows_are_plans_and_what_does_not_divide_is_refused(scored):
    rows = "8,32,4,1024,16,16,1024,2,2,2,219.7\n8,30,4,1024,16,16,1024,2,2,2,219.7\n"
    score = scored("training-vtrain-single", vtrain_single_node=VTRAIN + rows)
    assert score["rows_answered"] == 1
    (reason,) = score["refused"]
    assert "global_batch" in reason


def test_suites_of_one_tier_have_no_other(tmp_path, monkeypatch):
    (tmp_path / "training").mkdir()
    (tmp_path / "training/korthikanti_2022.csv").write_text(KORTHIKANTI)
    with pytest.raises(InvalidValueError, match=r"tier = 'spec'.*training-published"):
        validate(["training-published"], tmp_path, "spec")
    alone = {suite.name for suite in suites() if suite.has_best_alone}
    named = {suite.name for suite in suites() if suite.name.startswith("training-")}
    assert named - alone == {"training-collectives", "training-oracles"}
    monkeypatch.setattr(score, "suites", lambda: (suite("training-published"),))
    skipped = validate((), tmp_path, "spec").skipped
    assert skipped == {"training-published": "no tier spec: best alone"}


def test_plans_are_ranked_by_model(scored):
    rows = [f"64,512,{m},3072,32,30,2048,1,64,1,{t}" for m, t in ((8, 3566), (4, 3638), (1, 4000))]
    score = scored("training-vtrain-multi", vtrain_multi_node=VTRAIN + "\n".join(rows) + "\n")
    assert score["tau of plans"]["GPT 3072 x 30, 64 GPUs"] == pytest.approx(1.0)


def test_sharded_rows_are_answered(scored):
    tail = "6,48,80000,98304"
    rows = (
        f"7b,2048,8,h100_80gb,{tail},FULL_SHARD,False\n8b,2048,8,h100_80gb,{tail},FULL_SHARD,False\n"
        f"7b,2048,8,z9,{tail},FULL_SHARD,False\n7b,2048,8,h100_80gb,{tail},HALF_SHARD,False\n"
    )
    tables = {"llm_foundry_mpt": FSDP + rows, "model_dims": DIMENSIONS}
    score = scored("training-fsdp", **tables)
    assert score["rows_answered"] == 1
    assert set(score["refused"]) == {
        "no sizes of mpt-8b in the table of sizes",
        "no cluster of z9 in the catalogue",
        "no ZeRO stage of HALF_SHARD",
    }


def test_slices_and_models_without_a_configuration_are_answered_and_the_rest_named(scored):
    rows = (
        "v5e,1,256,16B,configs,120,\nv5e,2,512,16B,configs,117,\n"
        "v6e,1,256,Llama 2 7B,SL=4096,,9000\n"
        "v4,1,192,52B model,x,154,\nz9,1,256,16B,configs,120,\nv5e,1,256,Nothing 9,configs,120,\n"
        "v5e,1,256,32B,configs,,\n"
    )
    score = scored("training-maxtext", maxtext_mfu=MAXTEXT + rows)
    assert score["rows_answered"] == 4
    assert sorted(score["refused"]) == [
        "Unknown cluster of 'z9'",
        "Unknown workload 'nothing 9'",
        "no rate in the row",
    ]


def test_tables_call_models_and_chips_in_their_own_ways():
    assert workload_of("LLAMA3_70B").name == "llama-3.1-70b"
    assert workload_of("Qwen3_30B_a3B (dropless)").name == "qwen3-30b-a3b"
    assert cluster_of("DGX-B200") == cluster_of("B200") == "dgx-superpod-b200"
    assert cluster_of("v6e") == cluster_of("TPU-V6E") == "tpu-v6e-pod"
    with pytest.raises(UnknownNameError, match="TPU"):
        cluster_of("TPU")
    with pytest.raises(UnknownNameError, match="llama9"):
        workload_of("LLAMA9_70B")


def test_the_name_of_a_metered_system_says_its_chips():
    assert _metered("9xSMC-H100-SXM-80GB") == ("H100", 9, 8)
    assert _metered("SR780aV3-8xB200_SXM_180GB") == ("B200", 0, 8)
    assert _metered("Box-4xGB200") == ("GB200", 0, 4)


def test_batches_of_a_table_are_one_number_or_one_a_precision():
    two = '{"Batch size / GPU: mixed precision, FP32": "x"}'
    assert _batches({"batch": "128,64", "row_context": two}) == [128, 64]
    one = '{"Batch size / GPU": "x"}'
    assert _batches({"batch": "262,144", "row_context": one}) == [262_144]
    assert _batches({"batch": "8k", "row_context": one}) == [8192]


def test_the_scale_of_maxtext_goes_to_heads_then_width_then_depth():
    assert [_scaled(1 << power) for power in (0, 1, 2, 3)] == [
        (2048, 16, 7168, 16),
        (2048, 32, 14336, 16),
        (4096, 32, 14336, 16),
        (4096, 32, 14336, 32),
    ]


def test_bridge_rows_without_a_model_or_format_are_named(scored):
    rows = (
        "LLAMA3_70B,DGX-H100,64,FP8,128,1,8192,,4,8,1,5,n/a,1600\n"
        "Nemotron_3_Nano,DGX-H100,64,FP8,128,1,8192,,1,1,1,n/a,8,1600\n"
        "LLAMA3_70B,DGX-GB200,64,INT4,128,1,8192,,1,1,1,n/a,n/a,1600\n"
    )
    score = scored("training-megatron-bridge", megatron_bridge=BRIDGE + rows)
    assert score["rows_answered"] == 1
    assert len(score["refused"]) == 2


PAIRS = "round,org,benchmark,acc,n_small,n_large,tput_small,tput_large,gbs_small,gbs_large\n"
TIMES = (
    "round,org,system,benchmark,acc_class,acc_model,n_acc,minutes_olympic_mean,global_batch_size,"
    "epochs_median\n"
)
POWER = "system,benchmark,run,avg_power_W_per_node_meter\n"
EXAMPLES = (
    "framework,family,task_mode,gpu,n_gpus,precision,batch,metric_kind,metric_header,"
    "row_context,source,seq_len,value\n"
)


def test_speed_ups_are_of_rows_beside_each_other(scored):
    pairs = "v3.0,NVIDIA,bert,H100,8,64,7000,50000,384,3072\nv3.0,Org,rnnt,A100,8,16,1,2,16,32\n"
    head = "PyTorch,BERT,training,A100-80GB"
    tail = "throughput,Throughput,,README.md L811,128"
    examples = (
        f"{head},1,amp,128 and 256,{tail},580\n{head},8,amp,128 and 256,{tail},4591\n"
        f"{head},8,tf32,128 and 256,{tail},2505\n"
    )
    tables = {
        "mlperf_scaling_pairs": PAIRS + pairs,
        "nvidia_deeplearningexamples": EXAMPLES + examples,
    }
    score = scored("training-scaling", **tables)
    assert (score["rows_asked"], score["rows_answered"]) == (4, 3)
    assert score["max_ape_fraction"] < 0.4  # the row whose one GPU is predicted
    assert score["median_ape_fraction"] < 0.13


def test_epochs_are_samples_where_they_are_too_many(scored):
    rows = (
        "v3.1,A,s,unet3d,H100,any,8,19.0,56,347760\nv2.0,A,s,unet3d,A100,any,8,24.6,56,2070\n"
        "v2.0,A,s,rnnt,A100,any,8,24.6,56,2070\nv2.0,A,s,bert,A100,any,8,24.6,56,1.0\n"
    )
    score = scored("training-time", mlperf_time_to_train=TIMES + rows)
    assert score["rows_answered"] == 2
    assert score["p90_ape_fraction"] < 0.41


def test_a_round_says_which_network_and_a_row_which_board(scored):
    rows = (
        "v3.1,A,s,ssd,H100,any,8,37.0,256,4\nv1.0,A,s,ssd,H100,any,8,37.0,256,4\n"
        "v2.0,A,s,resnet,A100-PCIE,NVIDIA A100-PCIE-40GB (250W),8,37.0,2048,41\n"
    )
    score = scored("training-time", mlperf_time_to_train=TIMES + rows)
    assert score["rows_answered"] == 2
    (reason,) = score["refused"]
    assert "SSD over ResNet-34" in reason


def test_power_is_of_a_node(scored):
    rows = "1xSMC-H100,bert,a,6787\n1xSMC-H100,gpt3,b,6787\n"
    times = "v3.0,A,s,bert,H100,any,8,6.0,384,2800000\n"
    score = scored("training-power", mlperf_power=POWER + rows, mlperf_time_to_train=TIMES + times)
    assert (score["rows_asked"], score["rows_answered"]) == (2, 1)
    assert score["max_ape_fraction"] < 0.1


def test_memory_is_measured_here(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(training_memory, "_GPT_BATCHES", (4,))
    monkeypatch.setattr(training_memory, "_IMAGES", ())
    score = scoreboard_dict(validate(["training-memory"], tmp_path))["suites"]["training-memory"]
    assert score["rows_answered"] == 2
    assert score["max_ape_fraction"] < 0.01


def test_memory_needs_torch_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(training_memory, "find_spec", lambda _name: None)
    with pytest.raises(MissingDependencyError, match="torch"):
        validate(["training-memory"], tmp_path)


def test_model_arithmetic_is_that_of_narayanan():
    layers, hidden, seq, words = 96, 12_288, 2048, 51_200
    attention, logits = seq / (6 * hidden), words / (12 * layers * hidden)
    expected = 72 * seq * layers * hidden**2 * (1 + attention + logits)
    assert model_flop(gpt(hidden, 96, layers, seq), seq) == pytest.approx(expected, rel=1e-3)
