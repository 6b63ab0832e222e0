/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h - times of replays, counted by many threads without a lock.
 *
 * Each doubling of time has 16 buckets in the histogram, so times are exact to a sixteenth.
 * Counting is one addition. Any thread may add, read and reset at the same time.
 */
#ifndef FDRY_RUN_PROFILE_H
#define FDRY_RUN_PROFILE_H

#include "foundry/run.h"
#include "lib/err.h"

struct fdry_profile;

/* Nanoseconds of a monotonic clock. */
uint64_t fdry_profile_now(void);

int fdry_profile_new(const struct fdry_slots_profile_opts *opts,
		     struct fdry_profile **ret) __must_check;
/* No thread may use it any more. NULL is allowed. */
void fdry_profile_free(struct fdry_profile *p);
/* Count a call and set its number. Every Nth call is logged and passed to the function in the
 * options. */
void fdry_profile_add(struct fdry_profile *p, struct fdry_slots_call *call);
/* Fill all of @ret but @sz. */
void fdry_profile_read(struct fdry_profile *p, struct fdry_slots_stats *ret);
/* @unused gives both functions the same type. */
void fdry_profile_reset(struct fdry_profile *p, struct fdry_slots_stats *unused);

#endif
