"""What ``accelsim init`` writes: a scenario with every field commented."""

from __future__ import annotations

TEMPLATE = """\
# A question for: accelsim plan FILE
name: vision-api
objective: cost              # or energy, carbon, latency (of services), time (of jobs)
currency: USD                # prices are known in USD alone
months: 1                    # months that the load grows over

services:
  - name: classifier
    model: resnet-50         # a workload, or the path of one
    requests_per_s: 2000     # Poisson arrivals at the peak
    mean_load_fraction: 1.0  # load of the mean hour over that of the peak; for energy
    growth_fraction_per_month: 0.0
    latency_p99_ms: 100      # 99 of 100 requests are answered within
    # latency_ms: 100        # or: of so many requests, as accelsim serve has it
    # attainment_fraction: 0.9
    max_batch: 128           # largest batch a device may take at once
    run:                     # fields of accelsim.estimate: precision, stack, execution ...
      execution: compiled
    # of a language model; the latency is then of the whole answer, or left out:
    # prompt: lognormal:600:0.8  # lengths in tokens, as for accelsim serve
    # output: lognormal:160:0.6
    # session: steps=8,gap=2s    # agents, as serve --session; rates are of sessions then
    # prefix_tokens: 4000        # a system prompt that all prompts start with
    # trace: requests.csv        # or requests as they came
    # ttft_ms: 500               # for 90 % of the requests; ttft_p99_ms for 99 %
    # tpot_ms: 30
    # tp: [1, 2, 4, 8]           # devices of a replica that are tried; all of these if none
    # pp: [1, 2]                 # pipeline stages of a replica; one if none
    # ep: [1, 8]                 # ranks that share a mixture's experts; one and tp if none
    # engine: [vllm, sglang]     # vllm if none
    # precision: [bf16, fp8]     # the model's own if none

# training_jobs:
#   - name: nightly-bert
#     model: bert-base
#     samples: 1.0e+7          # or tokens
#     global_batch: 256
#     deadline_hours: 48
#     runs_per_month: 4
#     plan: lora_rank=16       # fields of a plan that stay; all others are searched
#     run: {precision: bf16}   # with stack: torchtitan; all trainers are tried if none
# batch_jobs:
#   - name: archive
#     model: resnet-50
#     samples: 1.0e+8
#     deadline_hours: 24
#     run: {execution: compiled}

candidates:
  devices: [cpu, gpu, fpga, tpu]  # names, or classes: cpu, gpu, fpga, asic, tpu
  providers: [aws, gcp]           # names or patterns, "*" for all
  regions: [us-*]                 # codes or patterns
  kinds: [on_demand]              # spot, committed_1y, committed_3y
  # provider_classes: [hyperscaler]  # specialised, marketplace, any; all but marketplaces if none
  # spot_age_days: 30               # older spot prices are not chosen
  counts: [1, 2, 4, 8]            # instances that a job may take
  # discounts: {aws: 0.2}         # share off the list prices of a provider
  # max_usd_per_hour: 20          # of an instance
  # owned:                        # hardware of one's own, at its cost per hour of work
  #   - {name: node, device: h100-sxm-80gb, device_count: 8, used_fraction: 0.8, life_years: 4,
  #      price_usd: 313500, busy_power_kw: 10.2, electricity_usd_per_kwh: 0.1, pue_ratio: 1.3}

# reliability:                    # none of it: nothing fails
#   instance_mtbf_hours: 5000     # mean time between failures of an instance
#   repair_hours: 1
#   spot_mtbf_hours: 20           # mean time between preemptions of a spot instance
#   restart_s: 600                # of a job, after either

constraints:
  # slo_probability: 0.9          # that the limits of latency hold, model error included; if none,
  # deadline_probability: 0.9     # the median is planned for and certainty priced beside it
  redundancy: 0                   # instances that may be down: N+k
  # residency: ["eu-*"]           # regions that all must be in
  # budget_usd_per_month: 5000
  # carbon_kgco2e_per_month: 500
  # power_w: 3000                 # mean power of all devices, site overhead included
  # instance_count: 20            # instances in all
  # quota: {gcp: 4, h100-sxm-80gb: 2}  # instances by provider, device or offer
  carbon_basis: location          # or market

seed: 0                      # of arrivals
"""
