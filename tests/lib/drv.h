/* SPDX-License-Identifier: Apache-2.0 */
/* drv.h - the driver of a test, for helpers that call it. */
#ifndef FDRY_TESTS_LIB_DRV_H
#define FDRY_TESTS_LIB_DRV_H

#include "arch/driver.h"

extern const struct fdry_driver *drv;

#endif
