// SPDX-License-Identifier: Apache-2.0
/* va_cached.c - replaces mm/va_cache.c in programs that call test_va_cached(); see va_cached.h. */
#include "mm/va_cache.c"
#include "tests/lib/va_cached.h"

long test_va_cached(void)
{
	long ret;

	pthread_mutex_lock(&lock);
	ret = n;
	pthread_mutex_unlock(&lock);
	return ret;
}
