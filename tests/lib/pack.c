// SPDX-License-Identifier: Apache-2.0
/* pack.c - see pack.h. */
#include "tests/lib/pack.h"

#include <sys/mman.h>

int pack_fd = -1;

struct fdry_store *store_at(const char *name)
{
	struct fdry_store *s = NULL;
	char p[400];

	snprintf(p, sizeof(p), "%s/%s", dir, name);
	ok(fdry_store_open(p, FDRY_STORE_CREATE, &s));
	return s;
}

int export_mem(struct fdry_store *s, const char *const *names, size_t n,
	       const struct fdry_export_opts *o, struct mem *m, struct fdry_pack_report *ret)
{
	struct fdry_pack_report r = { .sz = sizeof(r) };
	int err, fd = memfd_create("pack", MFD_CLOEXEC);
	void *to = NULL;
	off_t len;

	ck_assert_int_ge(fd, 0);
	pack_fd = fd;
	err = fdry_store_export(s, names, n, fd, o, &r);
	pack_fd = -1;
	len = lseek(fd, 0, SEEK_CUR);
	ck_assert(len >= 0 && !fdry_buf_grow(&m->b, (size_t)len, &to));
	ck_assert_int_eq(pread(fd, to, (size_t)len, 0), len);
	close(fd);
	if (!err && ret)
		*ret = r;
	return err;
}

struct mem export_to_mem(struct fdry_store *s, const char *const *names, size_t n,
			 const struct fdry_export_opts *o, struct fdry_pack_report *ret)
{
	struct mem m = { .at = 0 };

	ok(export_mem(s, names, n, o, &m, ret));
	return m;
}

int import_mem(struct fdry_store *s, struct mem *m, const struct fdry_import_opts *o,
	       struct fdry_pack_report *ret)
{
	struct fdry_pack_report r = { .sz = sizeof(r) };
	int err, fd = memfd_create("pack", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, m->b.data, m->b.len, 0), (ssize_t)m->b.len);
	pack_fd = fd;
	err = fdry_store_import(s, fd, o, &r);
	pack_fd = -1;
	m->at = (size_t)lseek(fd, 0, SEEK_CUR);
	close(fd);
	if (!err && ret)
		*ret = r;
	return err;
}

size_t prose(unsigned int seed, char *to, size_t len)
{
	size_t n = 0;

	while (n + 40 < len)
		n += (size_t)snprintf(to + n, len - n, "block %u of kernel %u does its part; ",
				      (unsigned int)(n / 97), seed);
	return n;
}

struct fdry_oid seal_mixed(struct fdry_store *s, unsigned int seed, size_t chunk, const char *ref)
{
	struct fdry_oid links[6], oid;
	uint8_t *data = malloc(chunk + 4000);
	struct fdry_writer *p;
	unsigned int i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < 2; i++) {
		noise(seed * 10 + i, data, chunk);
		links[i] = put(p, FDRY_OBJECT_CHUNK, data, chunk);
		links[2 + i] =
			put(p, FDRY_OBJECT_KERNEL, data, prose(seed * 2 + i, (char *)data, 4000));
	}
	memset(data, (int)seed, chunk);
	links[4] = put(p, FDRY_OBJECT_CHUNK, data, chunk);
	snprintf((char *)data, 100, "a graph of image %u", seed);
	ok(fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, data, strlen((char *)data), links + 2, 2,
				  &links[5]));
	snprintf((char *)data, 100, "the manifest of image %u", seed);
	ok(fdry_writer_commit(p, data, strlen((char *)data), links, 6, ref, &oid, NULL));
	free(data);
	return oid;
}

/* Return a hash of a store's visible state: its refs and the objects that they reach. */
static int see_object(void *arg, const struct fdry_object_info *info)
{
	struct fdry_hash *h = arg;

	ok(fdry_hash_update(h, &info->oid, sizeof(info->oid)));
	ok(fdry_hash_update(h, &info->kinds, sizeof(info->kinds)));
	ok(fdry_hash_update(h, &info->nlinks, sizeof(info->nlinks)));
	return 0;
}

static int see_ref(void *arg, const struct fdry_ref *ref)
{
	struct see *see = arg;

	ok(fdry_hash_update(&see->h, ref->name, strlen(ref->name) + 1));
	ok(fdry_hash_update(&see->h, &ref->oid, sizeof(ref->oid)));
	ok(fdry_hash_update(&see->h, &ref->identity, sizeof(ref->identity)));
	return fdry_store_reach(see->s, &ref->oid, see_object, &see->h);
}

struct fdry_oid see(struct fdry_store *s)
{
	struct see see = { .s = s };
	struct fdry_oid ret;

	ok(fdry_hash_update(&see.h, "", 0));
	ok(fdry_ref_each(s, see_ref, &see));
	ok(fdry_hash_final(&see.h, &ret));
	return ret;
}

struct fdry_oid see_all(struct fdry_store *s)
{
	struct see see = { .s = s };
	struct fdry_oid ret;

	ok(fdry_hash_update(&see.h, "", 0));
	ok(fdry_store_each(s, see_object, &see.h));
	ok(fdry_hash_final(&see.h, &ret));
	return ret;
}
