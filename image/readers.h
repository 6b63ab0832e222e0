/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readers.h - a work queue whose workers read a store, each through a reader of its own.
 *
 * Objects stay mapped until the readers are released. The caller keeps its own reader open for that
 * time. Objects that it can see cannot be collected, so the workers' readers never wait for a
 * collection.
 */
#ifndef FDRY_IMAGE_READERS_H
#define FDRY_IMAGE_READERS_H

#include "lib/workqueue.h"
#include "store/store.h"

#define FDRY_READERS_MAX 16 /* threads that read */

struct fdry_readers {
	struct fdry_workqueue queue;
	struct fdry_store *store;
	struct fdry_reader *reader[1 + FDRY_READERS_MAX]; /* by number of worker; entry 0 is the
							     caller's */
};

/* @reader: the caller's, for its own thread; it may be set later, before that thread works. @name:
 * names the threads; at most 15 bytes. */
void fdry_readers_init(struct fdry_readers *r, struct fdry_store *store, struct fdry_reader *reader,
		       const char *name);
/* Start no more work, wait for work that was started, close the workers' readers. The message of
 * the last failure stays. */
void fdry_readers_release(struct fdry_readers *r);
/* Start @threads threads, at most FDRY_READERS_MAX and at most one for each of @count pieces of
 * work. Returns their number. A thread that cannot open a reader ends at once. */
unsigned int fdry_readers_start(struct fdry_readers *r, unsigned int threads, size_t count);

#endif
