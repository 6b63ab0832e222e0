// SPDX-License-Identifier: Apache-2.0
/*
 * step.c - the hook of step.h.
 */
#include "store/step.h"

void (*fdry_step_hook)(enum fdry_step step);
