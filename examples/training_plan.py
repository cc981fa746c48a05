"""Which plan trains Llama-3.1-8B on 64 H100s, and what does a trillion tokens take?

Every way to split the model is scored, the best few are simulated, and the winner runs the whole
way, with failures and checkpoints.
"""

import accelsim

HOURS = 3600.0
TOKENS = 1e12
MEAN_HOURS_BETWEEN_FAILURES_OF_A_DEVICE = 50_000


def main() -> None:
    """Search, then show the winner and what the others lose."""
    length = accelsim.RunLength(
        tokens=TOKENS, mtbf_s=MEAN_HOURS_BETWEEN_FAILURES_OF_A_DEVICE * HOURS
    )
    best = accelsim.train(
        "llama-3.1-8b",
        cluster="dgx-superpod-h100",
        gpus=64,
        global_batch=512,
        seq_len=4096,
        plan="cp=1",
        search=True,
        length=length,
    )
    print(f"{best.considered} plans; {best.inputs['plan']} on {best.inputs['stack']} wins")
    print(
        f"{best.iteration_s:.1f} s an iteration, MFU {100 * (best.mfu_fraction or 0):.0f} %, "
        f"{best.memory_bytes / 1e9:.0f} GB on rank {best.worst_rank}"
    )
    for plan in (best.plans or ())[1:4]:
        print(f"  {plan['plan']}: {plan['why']}")
    print(
        f"{TOKENS:.0e} tokens: {(best.time_to_train_s or 0) / 86_400:.0f} days, "
        f"{best.expected_failures:.1f} failures, {(best.total_energy_j or 0) / 3.6e9:.0f} MWh, "
        f"{(best.total_cost_usd or 0) / 1e3:.0f} thousand USD"
    )


if __name__ == "__main__":
    main()
