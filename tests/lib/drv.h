/* SPDX-License-Identifier: Apache-2.0 */
/* drv.h - the driver that a test calls, for helpers that call it on the test's behalf. */
#ifndef FDRY_TESTS_LIB_DRV_H
#define FDRY_TESTS_LIB_DRV_H

#include "arch/driver.h"

extern const struct fdry_driver *drv;

#endif
