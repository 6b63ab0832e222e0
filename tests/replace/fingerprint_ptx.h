/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint_ptx.h - a library that has its fingerprint kernel as PTX alone. */
#ifndef FDRY_TESTS_REPLACE_FINGERPRINT_PTX_H
#define FDRY_TESTS_REPLACE_FINGERPRINT_PTX_H

#include "graph/fingerprint.h"

#endif
