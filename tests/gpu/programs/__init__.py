# SPDX-License-Identifier: Apache-2.0
"""Programs that other people made, for workloads.py: models, operators and optimizers of public
packages, each as a step that can be captured.
"""
from . import base, compiled, language, numeric, others, training, vision

MODULES = (vision, language, numeric, training, compiled, others)
PROGRAMS = base.PROGRAMS
