// SPDX-License-Identifier: Apache-2.0
/* repair_store.c - another store as a source of objects. */
#include <stdlib.h>

#include "lib/log.h"
#include "store/internal.h"
#include "store/repair.h"

struct store_source {
	struct fdry_source src;
	struct fdry_store *s;
};

struct asking {
	struct fdry_store *s;
	struct fdry_reader *reader;
	fdry_supply_fn fn;
	void *arg;
};

static int supply_one(struct asking *a, const struct fdry_oid *oid, struct fdry_buf *bytes)
{
	struct fdry_object_info info;
	struct fdry_oid *links = NULL;
	struct fdry_supply supply = { .oid = *oid };
	int err = fdry_reader_copy(a->reader, oid, bytes) ?: fdry_store_info(a->s, oid, &info) ?:
		  fdry_store_links(a->s, oid, &links, &supply.nlinks);

	if (err) {
		fdry_info("the source %s does not have an object: %s", fdry_store_path(a->s),
			  fdry_last_error());
		return err == -FDRY_E_NOENT || err == -FDRY_E_CORRUPT ? 0 : err;
	}
	supply.kinds = info.kinds;
	supply.data = (struct fdry_span){ bytes->data, bytes->len };
	supply.links = links;
	err = a->fn(a->arg, &supply);
	free(links);
	return err;
}

static int store_supply(struct fdry_source *src, struct fdry_store *to,
			const struct fdry_idset *wanted, fdry_supply_fn fn, void *arg)
{
	struct store_source *ss = (struct store_source *)src;
	struct asking a = { .s = ss->s, .fn = fn, .arg = arg };
	struct fdry_buf bytes = { 0 };
	size_t i;
	int err = fdry_reader_begin(ss->s, &a.reader);

	(void)to;
	if (err)
		return err;
	for (i = 0; i < wanted->cap && !err; i++) {
		bytes.len = 0;
		if (wanted->used[i])
			err = supply_one(&a, &wanted->slots[i], &bytes);
	}
	fdry_reader_end(a.reader);
	fdry_buf_release(&bytes);
	return err;
}

static void store_close(struct fdry_source *src)
{
	struct store_source *ss = (struct store_source *)src;

	fdry_store_close(ss->s);
	free(ss);
}

static const struct fdry_source_ops store_ops = { .supply = store_supply, .close = store_close };

int fdry_source_store_open(const char *path, struct fdry_source **ret)
{
	struct store_source *ss = calloc(1, sizeof(*ss));
	int err;

	if (!ss)
		return fdry_nomem();
	err = fdry_store_open(path, FDRY_STORE_READONLY, &ss->s);
	if (err) {
		free(ss);
		return fdry_fail_at(err, "source %s", path);
	}
	ss->src.ops = &store_ops;
	*ret = &ss->src;
	return 0;
}
