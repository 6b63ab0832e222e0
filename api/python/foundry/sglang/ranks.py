# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism of SGLang on the GPUs of one host."""
import os

from ..engines import ranks, session


def of(runner):
    """Return the Ranks of a model runner's engine."""
    return ranks.of_engine(runner.tp_rank, runner.tp_size, _parallel_state)


def _parallel_state():
    from sglang.srt.distributed import parallel_state
    return parallel_state


def check(args, envs):
    """Raise Unfit if the ranks share more than NCCL's collectives, or are not those of one host.

    args: of the server. envs: SGLang's variables.
    """
    session.check_configuration(
        (args.nnodes != 1, "ranks on several hosts"),
        (args.pp_size != 1, "pipeline parallelism"),
        (args.dp_size != 1, "data parallelism"),
        (args.enable_dp_attention, "data parallelism of attention"),
        (args.ep_size != 1 or args.moe_dp_size != 1 or args.elastic_ep_backend is not None,
         "expert parallelism"),
        (args.attn_cp_size != 1 or args.dcp_size != 1, "context parallelism"))
    if args.tp_size == 1:
        return
    session.check_configuration(
        # The ranks of one host have the same variables and plug-ins, so all decide together.
        (args.use_ray or envs.SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE.get(),
         "ranks that another program starts"),
        (envs.SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS.get(), "ranks that see one GPU each"),
        (not args.disable_custom_all_reduce,
         "custom all-reduce (start with --disable-custom-all-reduce)"),
        (args.enable_mscclpp, "all-reduce by MSCCL++"),
        (args.enable_torch_symm_mem, "all-reduce by symmetric memory"),
        (args.flashinfer_allreduce_fusion_backend is not None, "all-reduce by FlashInfer (start "
         "with --enforce-disable-flashinfer-allreduce-fusion)"),
        # SGLang sets this variable to 0 by default.
        (args.enable_nccl_nvls or os.environ.get("NCCL_NVLS_ENABLE") != "0",
         "NCCL's multicast memory (start without --enable-nccl-nvls and with NCCL_NVLS_ENABLE=0)"),
        *ranks.nccl_settings())
    ranks.set_up_nccl()


def connect(runner):
    """Let all groups of ranks make their communicators."""
    ranks.connect(_parallel_state(), f"cuda:{runner.gpu_id}")


def gather_by_nccl(model):
    """Let a model gather its logits by NCCL, which gives the same bytes.

    By default SGLang makes multicast memory for this in the warm-up. Graphs would have its address,
    which differs from start to start.
    """
    from sglang.srt.distributed.device_communicators.triton_symm_mem_ag import MultimemAllGatherer
    for module in model.modules():
        for each in vars(module).values():
            if isinstance(each, MultimemAllGatherer):
                each._state = None
