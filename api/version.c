// SPDX-License-Identifier: Apache-2.0
/* version.c - what this library is. */
#include "foundry.h"

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)

const char *fdry_version(void)
{
	return NUMBER(FDRY_VERSION_MAJOR) "." NUMBER(FDRY_VERSION_MINOR) "." NUMBER(
		FDRY_VERSION_PATCH);
}
