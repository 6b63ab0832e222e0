# SPDX-License-Identifier: Apache-2.0
"""The common parts of the plug-ins of serving engines, foundry.vllm and foundry.sglang.

A plug-in calls log.use() with the engine's logger before anything else here.
"""
