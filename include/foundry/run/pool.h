/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - memory, streams and events that are used again instead of made anew; buffers by handle.
 * Part of foundry/run.h. The rules of foundry.h for errors, threads, handles and units apply.
 *
 * Every call may come from any thread. One thread may get what another thread has put.
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
	FDRY_TRANSIENT_DEVICE, /* the pool keeps at most 256 MiB, or FOUNDRY_POOL_DEVICE */
	FDRY_TRANSIENT_PINNED, /* host memory for asynchronous copies: 128 MiB, or
				  FOUNDRY_POOL_PINNED */
	FDRY_TRANSIENT_KINDS
};

/* In place of a stream. A put with it means: the caller has waited for all use. A get with it
 * means: the caller uses the memory at once, from anywhere. */
#define FDRY_STREAM_NONE ((CUstream)(intptr_t)-1)

/**
 * fdry_transient_get() - Get memory.
 * @bytes: at least 1; rounded up to a multiple of 512, and above 4096 by at most an eighth
 * @stream: the stream whose work uses the memory first, of the device's primary context; NULL: the
 *         default stream; or FDRY_STREAM_NONE
 * @ret: its address, a multiple of 512; for pinned memory the host address. The content is
 *         undefined
 *
 * The pool returns memory that was put on @stream at once, because the stream keeps the order. It
 * returns memory that another stream may still use only after that work has ended. If the driver
 * has no memory left, the pool waits for the memory that it keeps, releases all of it, and asks the
 * driver again.
 *
 * Errors: FDRY_E_NODEVMEM (the message has the bytes asked for, free and in use), FDRY_E_NOMEM
 * (pinned memory), FDRY_E_STATE (@stream is capturing: memory of a graph must live as long as the
 * graph), FDRY_E_INVAL, FDRY_E_FORKED, FDRY_E_DRIVER.
 */
int fdry_transient_get(struct fdry_device *dev, enum fdry_transient_kind kind, size_t bytes,
		       CUstream stream, uint64_t *ret);

/**
 * fdry_transient_put() - Put memory back.
 * @addr: from fdry_transient_get()
 * @stream: nothing uses the memory after the work that is on this stream now; or FDRY_STREAM_NONE
 *
 * The call does not wait, unless the pool is over its limit: then it releases the memory that it
 * has kept longest.
 *
 * Errors: FDRY_E_STALE (no memory of this pool in use begins there: it was put twice, or comes from
 * elsewhere), FDRY_E_STATE (@stream is capturing), FDRY_E_INVAL, FDRY_E_FORKED, FDRY_E_DRIVER.
 * After an error the memory is still in use.
 */
int fdry_transient_put(struct fdry_device *dev, enum fdry_transient_kind kind, uint64_t addr,
		       CUstream stream);

/**
 * struct fdry_transient_stats - A pool now, and since it was made.
 * @sz: set by the caller: sizeof(struct fdry_transient_stats)
 * @limit: the most that the pool keeps; @cached: what it keeps, in @cached_count pieces
 * @used: what is in use, in @used_count pieces, rounded up; @peak: the most that was in use
 * @hits: gets from kept memory; @misses: gets from the driver; @retries: the gets among these that
 *         first had to release everything
 * @busy: gets that passed over memory because another stream could still use it
 */
struct fdry_transient_stats {
	size_t sz;
	uint64_t limit, cached, cached_count, used, used_count, peak;
	uint64_t hits, misses, retries, busy;
};

/* Errors: FDRY_E_OPTS (@ret->sz), FDRY_E_INVAL, FDRY_E_FORKED. */
int fdry_transient_stats(struct fdry_device *dev, enum fdry_transient_kind kind,
			 struct fdry_transient_stats *ret);
/* Keep at most @bytes from now on; 0: nothing. The call releases memory above the limit, the memory
 * that was kept longest first, and waits for its work. */
int fdry_transient_set_limit(struct fdry_device *dev, enum fdry_transient_kind kind,
			     uint64_t bytes);

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
 * The pool passes over streams with unfinished work. A context in which 15 streams were ever used
 * replays graphs about 15 % slower, so use few streams and put them back.
 */
int fdry_sync_get(struct fdry_device *dev, enum fdry_sync_kind kind, void **ret);

/**
 * fdry_sync_put() - Put a stream or an event back.
 *
 * The pool keeps 128 of a kind, or FOUNDRY_POOL_KEPT, and destroys any above that number.
 * Errors: FDRY_E_STALE (put twice, or from elsewhere), FDRY_E_STATE (a stream that is capturing),
 * FDRY_E_INVAL, FDRY_E_FORKED, FDRY_E_DRIVER. After an error the caller still has it.
 */
int fdry_sync_put(struct fdry_device *dev, enum fdry_sync_kind kind, void *what);

/* Streams or events of one kind. @sz: set by the caller. @kept: for later, at most @limit; @used:
 * in use now; @made and @destroyed: by the driver; @again: gets of kept ones. */
struct fdry_sync_stats {
	size_t sz;
	uint64_t limit, kept, used, made, destroyed, again;
};

int fdry_sync_stats(struct fdry_device *dev, enum fdry_sync_kind kind,
		    struct fdry_sync_stats *ret);
/* The number of streams and events of all kinds that are kept; 0 for NULL and in a forked child. */
size_t fdry_sync_count(struct fdry_device *dev);

/* ------------------------------------------------------------ resident buffers --- */

/* A number that names one buffer and never another. 0 names none. */
typedef uint64_t fdry_resident;

/* Allocate device memory under a handle, from the device's pool. Errors: those of
 * fdry_transient_get(), FDRY_E_LIMIT. */
int fdry_resident_new(struct fdry_device *dev, size_t bytes, fdry_resident *ret);
/* The buffer's address, and the bytes that were asked for; either may be NULL. Errors: FDRY_E_NOKEY
 * (no buffer ever had this handle), FDRY_E_STALE (the buffer was freed). */
int fdry_resident_view(struct fdry_device *dev, fdry_resident handle, fdry_devptr *addr,
		       size_t *bytes);
/* Free the buffer after the work of @stream, as fdry_transient_put() does, and after the copies
 * that other threads make of it. 0 frees nothing. Errors: those of fdry_resident_view() and
 * fdry_transient_put(). */
int fdry_resident_free(struct fdry_device *dev, fdry_resident handle, CUstream stream);
/* Copy @len bytes at @offset of the buffer in the order of @stream, and wait. FDRY_STREAM_NONE: in
 * no order. Errors: FDRY_E_RANGE (the message has both sizes), FDRY_E_STATE (@stream is
 * capturing), those of fdry_resident_view(), FDRY_E_DRIVER. */
int fdry_resident_write(struct fdry_device *dev, fdry_resident handle, size_t offset,
			const void *data, size_t len, CUstream stream);
int fdry_resident_read(struct fdry_device *dev, fdry_resident handle, size_t offset, void *data,
		       size_t len, CUstream stream);
/* The number of buffers; 0 for NULL and in a forked child. */
size_t fdry_resident_count(struct fdry_device *dev);

#ifdef __cplusplus
}
#endif

#endif
