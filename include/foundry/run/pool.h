/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - memory, streams and events that are used again instead of made anew; buffers by
 * handle. Part of foundry/run.h, whose rules for errors, threads and units hold here.
 *
 * Every call may come from any thread. What one gives back, another may get.
 */
#ifndef FOUNDRY_RUN_POOL_H
#define FOUNDRY_RUN_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/run/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------ memory --- */

enum fdry_transient_kind {
	FDRY_TRANSIENT_DEVICE, /* keeps 256 MiB at most, or as FOUNDRY_POOL_DEVICE says */
	FDRY_TRANSIENT_PINNED, /* host memory that copies are asynchronous with: 128 MiB, or FOUNDRY_POOL_PINNED */
	FDRY_TRANSIENT_KINDS
};

/* In place of a stream: whoever gives back has waited for all use; whoever gets uses it at once, from anywhere. */
#define FDRY_STREAM_NONE ((CUstream)(intptr_t)-1)

/**
 * fdry_transient_get() - Get memory.
 * @bytes: at least 1; rounded up to a multiple of 512, above 4096 by an eighth at most
 * @stream: whose work uses it first, of the device's primary context; NULL: the default stream; or FDRY_STREAM_NONE
 * @ret: its address, 512-byte aligned; of pinned memory the host's. The content is undefined.
 *
 * Memory that was given back on @stream is handed out at once, since the stream keeps the order; memory
 * that another stream may still use is not, until that work is done.
 * Where the driver has none left, all that the pool keeps is released, after waiting for its work, and the driver is asked again.
 * Errors: FDRY_E_NODEVMEM (bytes asked for, free and in use are said), FDRY_E_NOMEM (pinned), FDRY_E_STATE
 * (@stream is capturing: what a graph uses must stay as long as the graph), FDRY_E_INVAL, FDRY_E_FORKED, FDRY_E_DRIVER.
 */
int fdry_transient_get(struct fdry_device *dev, enum fdry_transient_kind kind, size_t bytes, CUstream stream, uint64_t *ret);

/**
 * fdry_transient_put() - Give memory back.
 * @addr: as fdry_transient_get() gave it
 * @stream: the stream behind whose work, as it is now, nothing uses it; or FDRY_STREAM_NONE
 *
 * It does not wait, unless the pool is over its limit and what was kept longest must go.
 * Errors: FDRY_E_STALE (nothing of this pool that is in use lies there: given back twice, or another's), FDRY_E_STATE
 * (@stream is capturing), FDRY_E_INVAL, FDRY_E_FORKED, FDRY_E_DRIVER. The memory is then still in use.
 */
int fdry_transient_put(struct fdry_device *dev, enum fdry_transient_kind kind, uint64_t addr, CUstream stream);

/**
 * struct fdry_transient_stats - A pool now, and since it was made.
 * @sz: set by the caller: sizeof(struct fdry_transient_stats)
 * @limit: what it keeps at most; @cached: what it keeps, in @cached_count pieces
 * @used: what is in use, in @used_count pieces, as rounded up; @peak: the most that was
 * @hits: gets from what was kept; @misses: gets from the driver; @retries: of those, after all was released
 * @busy: gets that passed over memory because another stream may still have used it
 */
struct fdry_transient_stats {
	size_t sz;
	uint64_t limit, cached, cached_count, used, used_count, peak;
	uint64_t hits, misses, retries, busy;
};

/* Errors: FDRY_E_OPTS (@ret->sz), FDRY_E_INVAL, FDRY_E_FORKED. */
int fdry_transient_stats(const struct fdry_device *dev, enum fdry_transient_kind kind, struct fdry_transient_stats *ret);
/* Keep @bytes at most from now on; 0: nothing. What is over goes, what was kept longest first, and its work is waited for. */
int fdry_transient_set_limit(struct fdry_device *dev, enum fdry_transient_kind kind, uint64_t bytes);

/* ------------------------------------------------------------ streams, events --- */

enum fdry_sync_kind {
	FDRY_SYNC_STREAM, /* non-blocking */
	FDRY_SYNC_EVENT,  /* without timing: cheaper */
	FDRY_SYNC_TIMER,  /* an event with timing */
	FDRY_SYNC_KINDS
};

/**
 * fdry_sync_get() - Get a stream or an event.
 * @ret: a CUstream or a CUevent of the device's primary context
 *
 * Streams whose work is not done are passed over. A context in which 15 streams were ever used replays graphs about
 * 15 % slower: take few, give them back.
 */
int fdry_sync_get(struct fdry_device *dev, enum fdry_sync_kind kind, void **ret);

/**
 * fdry_sync_put() - Give it back, for others.
 *
 * 128 of a kind are kept, or as FOUNDRY_POOL_KEPT says; one more is destroyed.
 * Errors: FDRY_E_STALE (given back twice, or another's), FDRY_E_STATE (a stream that is capturing), FDRY_E_INVAL,
 * FDRY_E_FORKED, FDRY_E_DRIVER. It is then still yours.
 */
int fdry_sync_put(struct fdry_device *dev, enum fdry_sync_kind kind, void *what);

/* @sz: set by the caller. Of one kind: @kept for later, at most @limit; @used now; @made and @destroyed by the driver; @again: gets of kept ones. */
struct fdry_sync_stats {
	size_t sz;
	uint64_t limit, kept, used, made, destroyed, again;
};

int fdry_sync_stats(const struct fdry_device *dev, enum fdry_sync_kind kind, struct fdry_sync_stats *ret);
/* How many streams and events of all kinds are kept; 0 for NULL and in a forked child. */
size_t fdry_sync_count(const struct fdry_device *dev);

/* ------------------------------------------------------------ resident buffers --- */

/* A number that names a buffer, and no other one ever: 0 names none. */
typedef uint64_t fdry_resident;

/* Device memory under a handle, from the device's pool. Errors: those of fdry_transient_get(), FDRY_E_LIMIT. */
int fdry_resident_new(struct fdry_device *dev, size_t bytes, fdry_resident *ret);
/* Its address, and the bytes that were asked for; either may be NULL. Errors: FDRY_E_NOKEY (no buffer ever had this
 * handle), FDRY_E_STALE (the buffer it named is gone). */
int fdry_resident_view(struct fdry_device *dev, fdry_resident handle, fdry_devptr *addr, size_t *bytes);
/* It is gone behind the work of @stream (as fdry_transient_put() has it), and behind the copies that other threads make of it.
 * Errors: those of fdry_resident_view() and fdry_transient_put(). */
int fdry_resident_free(struct fdry_device *dev, fdry_resident handle, CUstream stream);
/* Copy @len bytes at @offset of it, in the order of @stream (FDRY_STREAM_NONE: of none), and wait. Errors: FDRY_E_RANGE (both
 * sizes are said), FDRY_E_STATE (@stream is capturing), those of fdry_resident_view(), FDRY_E_DRIVER. */
int fdry_resident_write(struct fdry_device *dev, fdry_resident handle, size_t offset, const void *data, size_t len, CUstream stream);
int fdry_resident_read(struct fdry_device *dev, fdry_resident handle, size_t offset, void *data, size_t len, CUstream stream);
/* How many there are; 0 for NULL and in a forked child. */
size_t fdry_resident_count(const struct fdry_device *dev);

#ifdef __cplusplus
}
#endif

#endif
