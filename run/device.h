/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - a device and its pools of memory, streams and events, and its buffers by handle.
 *
 * Each part has its own lock. Lock order: residents, then memory, then streams and events.
 */
#ifndef FDRY_RUN_DEVICE_H
#define FDRY_RUN_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "foundry/run.h"
#include "arch/driver.h"
#include "lib/map.h"

#define FDRY_SIZE_CLASSES 300

/* A piece of memory, in use or kept. */
struct fdry_spare {
	uint64_t addr;
	size_t bytes;              /* rounded up */
	CUevent done;              /* kept: recorded after its last use; NULL: nothing uses it */
	unsigned long long stream; /* kept: the driver's number of that stream; 0: not known */
	bool leaving;              /* in use: a put has begun */
	struct fdry_spare *next, *prev;   /* kept, of the same size, the newest first */
	struct fdry_spare *newer, *older; /* kept, of all sizes */
};

struct fdry_transient {
	struct fdry_device *dev;
	enum fdry_transient_kind kind;
	pthread_mutex_t lock;
	struct fdry_map used; /* by address */
	struct fdry_spare *kept[FDRY_SIZE_CLASSES];
	struct fdry_spare *newest, *oldest;
	struct fdry_transient_stats stats;
};

struct fdry_syncs {
	struct fdry_device *dev;
	enum fdry_sync_kind kind;
	pthread_mutex_t lock;
	struct fdry_map used;
	void **kept; /* has space for the limit */
	struct fdry_sync_stats stats;
};

struct fdry_resident_slot {
	uint64_t addr; /* 0: free */
	size_t bytes;
	uint32_t generation; /* of the present buffer, or of the next one */
	uint32_t next_free;  /* index + 1; 0: the last */
	uint32_t copies;     /* in progress */
};

struct fdry_residents {
	pthread_mutex_t lock;
	pthread_cond_t idle; /* the last copy of a slot has ended */
	struct fdry_resident_slot *slots;
	uint32_t n, capacity, first_free;
	size_t count;
};

struct fdry_device {
	struct fdry_device *next;
	unsigned int refs;
	pid_t pid;
	const struct fdry_driver *drv;
	CUdevice device;
	CUcontext ctx; /* the primary context */
	struct fdry_device_caps caps;
	struct fdry_transient pools[FDRY_TRANSIENT_KINDS];
	struct fdry_syncs syncs[FDRY_SYNC_KINDS];
	struct fdry_residents residents;
};

/* Check a caller's device: FDRY_E_INVAL, FDRY_E_FORKED. */
int fdry_device_check(const struct fdry_device *dev) __must_check;
/* Check the device, and that @kind is one of @kinds. @what completes the message "K is no kind of
 * ...". */
int fdry_device_check_kind(const struct fdry_device *dev, int kind, int kinds,
			   const char *what) __must_check;
/* Check the device, make its context current, and relax this thread's capture mode until
 * fdry_device_leave(). */
int fdry_device_enter(const struct fdry_device *dev, CUstreamCaptureMode *mode) __must_check;
void fdry_device_leave(const struct fdry_device *dev, CUstreamCaptureMode *mode);
/* FDRY_E_STATE if @stream is capturing; @what completes the message. Call it between enter and
 * leave. */
int fdry_device_not_capturing(const struct fdry_device *dev, CUstream stream,
			      const char *what) __must_check;

/* The parts of a device. An init may return FDRY_E_ENV. A release frees everything that is not in
 * use; call it between enter and leave. */
int fdry_transient_init(struct fdry_transient *p, struct fdry_device *dev,
			enum fdry_transient_kind kind) __must_check;
void fdry_transient_release(struct fdry_transient *p);
int fdry_syncs_init(struct fdry_syncs *s, struct fdry_device *dev,
		    enum fdry_sync_kind kind) __must_check;
void fdry_syncs_release(struct fdry_syncs *s);
void fdry_residents_release(struct fdry_residents *r);

/* Free kept memory until @keep bytes remain. Continues after an error, and returns the first error.
 * Call these between enter and leave. */
int fdry_transient_trim(struct fdry_transient *p, uint64_t keep);
void fdry_syncs_trim(struct fdry_syncs *s);
/* Do what fdry_sync_get() and fdry_sync_put() do, between enter and leave. A put cannot fail for a
 * stream or event from a get. */
int fdry_syncs_get(struct fdry_syncs *s, void **ret) __must_check;
int fdry_syncs_put(struct fdry_syncs *s, void *what);

/* Set up the driver's cache of compiled code, once in a process, before the driver starts.
 * FDRY_E_ENV, FDRY_E_NOHOME, FDRY_E_NOMEM. */
int fdry_jit_cache_set_up(void) __must_check;

#endif
