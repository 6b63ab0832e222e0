// SPDX-License-Identifier: Apache-2.0
/*
 * repair_pack.c - a pack as a source of objects.
 *
 * A pack is read from front to back: once to check that it is whole, since only its end confirms
 * kinds and links, and once for each set of wanted objects.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fd.h"
#include "store/internal.h"
#include "store/pack.h"
#include "store/repair.h"

struct pack_source {
	struct fdry_source src;
	int fd;
	char path[];
};

struct reading {
	struct fdry_pack_reader r;
	const struct fdry_idset *wanted; /* NULL: none */
	fdry_supply_fn fn;
	void *arg;
	struct fdry_unpacker unpacker;
	struct fdry_buf links, body, plain;
};

static int supply_one(struct reading *rd, const struct fdry_pack_object *o)
{
	struct fdry_supply supply = { .oid = o->oid, .kinds = o->kinds, .nlinks = o->nlinks };
	int err = fdry_pack_body(&rd->r, o, &rd->body) ?:
		  fdry_pack_unpack(o, (struct fdry_span){ rd->body.data, rd->body.len },
				   &rd->unpacker, &rd->plain);

	if (err == -FDRY_E_CORRUPT)
		return 0; /* another source may have it */
	if (err)
		return err;
	supply.data = (struct fdry_span){ rd->plain.data, rd->plain.len };
	supply.links = (const void *)rd->links.data;
	return rd->fn(rd->arg, &supply);
}

static int read_objects(struct reading *rd)
{
	struct fdry_pack_object o;
	struct fdry_oid id;
	uint64_t i;
	int err;

	for (i = 0; i < rd->r.objects; i++) {
		rd->links.len = rd->body.len = rd->plain.len = 0;
		err = fdry_pack_next(&rd->r, &o, &rd->links);
		if (err)
			return err;
		err = rd->wanted && fdry_idset_has(rd->wanted, &o.oid)
			      ? supply_one(rd, &o)
			      : fdry_pack_skip(&rd->r, &o);
		if (err)
			return err;
	}
	return fdry_pack_end(&rd->r, &id);
}

static int read_pack(struct pack_source *ps, struct reading *rd)
{
	int err;

	if (lseek(ps->fd, 0, SEEK_SET))
		return fdry_fail(FDRY_E_IO, "cannot read %s from its beginning: %s", ps->path,
				 strerror(errno));
	err = fdry_pack_open(&rd->r, ps->fd);
	if (err)
		goto out_release;
	err = read_objects(rd);
	fdry_pack_reader_release(&rd->r);
out_release:
	fdry_unpacker_release(&rd->unpacker);
	fdry_buf_release(&rd->links);
	fdry_buf_release(&rd->body);
	fdry_buf_release(&rd->plain);
	return err ? fdry_fail_at(err, "source %s", ps->path) : 0;
}

static int pack_supply(struct fdry_source *src, struct fdry_store *to,
		       const struct fdry_idset *wanted, fdry_supply_fn fn, void *arg)
{
	struct reading rd = { .wanted = wanted, .fn = fn, .arg = arg };

	(void)to;
	return read_pack((struct pack_source *)src, &rd);
}

static void pack_close(struct fdry_source *src)
{
	struct pack_source *ps = (struct pack_source *)src;

	close(ps->fd);
	free(ps);
}

static const struct fdry_source_ops pack_ops = { .supply = pack_supply, .close = pack_close };

static int pack_open(const char *path, struct fdry_source **ret)
{
	size_t len = strlen(path) + 1;
	struct pack_source *ps = calloc(1, sizeof(*ps) + len);
	struct reading rd = { .wanted = NULL };
	struct stat st;
	int err;

	if (!ps)
		return fdry_nomem();
	ps->src.ops = &pack_ops;
	memcpy(ps->path, path, len);
	ps->fd = fdry_open(path, O_RDONLY | O_NONBLOCK, 0); /* a FIFO is refused at once */
	if (ps->fd < 0 || fstat(ps->fd, &st)) {
		err = fdry_fail(errno == ENOENT ? FDRY_E_NOENT : FDRY_E_IO,
				"cannot open the source %s: %s", path, strerror(errno));
		goto out_close;
	}
	if (!S_ISREG(st.st_mode)) {
		err = fdry_fail(FDRY_E_INVAL,
				"the source %s is neither a store nor a file; save the pack first",
				path);
		goto out_close;
	}
	err = read_pack(ps, &rd);
	if (err)
		goto out_close;
	*ret = &ps->src;
	return 0;
out_close:
	if (ps->fd >= 0)
		close(ps->fd);
	free(ps);
	return err;
}

int fdry_source_open(const char *path, struct fdry_source **ret)
{
	struct stat st;

	if (stat(path, &st))
		return fdry_fail(FDRY_E_NOENT, "cannot open the source %s: %s", path,
				 strerror(errno));
	return S_ISDIR(st.st_mode) ? fdry_source_store_open(path, ret)
				   : pack_open(path, ret);
}

void fdry_source_close(struct fdry_source *src)
{
	if (src)
		src->ops->close(src);
}
