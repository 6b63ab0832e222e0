// SPDX-License-Identifier: Apache-2.0
/* drv.c - see drv.h. */
#include "tests/lib/drv.h"

const struct fdry_driver *drv;
