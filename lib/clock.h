/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the time and sleeping, in milliseconds. */
#ifndef FDRY_LIB_CLOCK_H
#define FDRY_LIB_CLOCK_H

#include <time.h>

static inline double fdry_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline void fdry_sleep_ms(unsigned int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

/* Processor time of this thread, milliseconds. */
static inline double fdry_thread_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Milliseconds since *@mark, which moves to now. */
static inline double fdry_elapsed_ms(double *mark)
{
	double now = fdry_now_ms(), elapsed = now - *mark;

	*mark = now;
	return elapsed;
}

#endif
