# SPDX-License-Identifier: Apache-2.0


def should_run_flashinfer_autotune(runner):
    return runner.server_args.moe_runner_backend == "flashinfer_cutlass"
