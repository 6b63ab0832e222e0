// SPDX-License-Identifier: Apache-2.0
/* readers.c - opens a reader for each worker; see readers.h. */
#include "image/readers.h"

#include "lib/log.h"

static int reader_open(void *arg, unsigned int worker)
{
	struct fdry_readers *r = arg;
	int err;

	if (worker > FDRY_READERS_MAX)
		return -FDRY_E_LIMIT; /* others had to end, and this one takes no place of theirs */
	if (r->reader[worker])
		return 0; /* of a thread that has ended */
	err = fdry_reader_begin(r->store, &r->reader[worker]);
	if (err)
		fdry_debug("a thread cannot read the store: %s", fdry_last_error());
	return err;
}

void fdry_readers_init(struct fdry_readers *r, struct fdry_store *store, struct fdry_reader *reader,
		       const char *name)
{
	const struct fdry_workqueue_opts opts = { .name = name,
						  .stop_at_error = true,
						  .end_idle = true,
						  .begin = reader_open,
						  .arg = r };

	*r = (struct fdry_readers){ .store = store };
	r->reader[0] = reader;
	fdry_workqueue_init(&r->queue, &opts);
}

void fdry_readers_release(struct fdry_readers *r)
{
	unsigned int i;

	fdry_workqueue_release(&r->queue);
	/* One after the other, since each adds to the store's list of verified objects. */
	for (i = 1; i <= FDRY_READERS_MAX; i++)
		fdry_reader_end(r->reader[i]);
}

unsigned int fdry_readers_start(struct fdry_readers *r, unsigned int threads, size_t count)
{
	if (threads > FDRY_READERS_MAX)
		threads = FDRY_READERS_MAX;
	if (threads > count)
		threads = (unsigned int)count;
	return fdry_workqueue_start(&r->queue, threads);
}
