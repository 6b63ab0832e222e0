// SPDX-License-Identifier: Apache-2.0
/* need.c - see need.h. */
#include "tests/lib/need.h"

#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/err.h"

/* The library's results are above this, LMDB's own below. */
#define LIBRARY_MIN -1000

void need(int result, const char *what)
{
	const char *why;

	if (!result)
		return;
	if (result == 1)
		why = strerror(errno);
	else if (result > 0 || result <= LIBRARY_MIN)
		why = mdb_strerror(result);
	else
		why = fdry_last_error();
	fprintf(stderr, "%s: %s\n", what, why);
	exit(result == -FDRY_E_NODRIVER || result == -FDRY_E_NOGPU ? 77 : 1);
}

void must(int result)
{
	need(result, program_invocation_short_name);
}
