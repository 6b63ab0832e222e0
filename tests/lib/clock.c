// SPDX-License-Identifier: Apache-2.0
/* clock.c - see clock.h. */
#include "tests/lib/clock.h"

#include <time.h>

double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double now_us(void)
{
	return now_ns() / 1e3;
}

double now_ms(void)
{
	return now_ns() / 1e6;
}

double now_s(void)
{
	return now_ns() / 1e9;
}
