// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_pack.c - packs from anybody: as bytes, and a good one with bytes replaced.
 *
 * The first byte of the input says which way the rest goes in. What is read is within the
 * format's limits and matches its id; what is imported can be reached whole from its refs, and an
 * import that fails changes none.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/internal.h"
#include "store/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static char dir[64];
static struct fdry_store *from, *to;
static struct fdry_buf good;

static void must(int ok)
{
	if (!ok)
		abort();
}

/* --- a store, and a good pack --- */

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static void leave(void)
{
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int append(void *arg, const void *data, size_t len)
{
	return fdry_buf_put(arg, data, len);
}

static struct fdry_store *store_in(const char *name)
{
	struct fdry_store *s = NULL;
	char path[100];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	must(!fdry_store_open(path, FDRY_STORE_CREATE, &s));
	return s;
}

static struct fdry_oid seal(struct fdry_store *s)
{
	static const char text[] =
		"kernel kernel kernel kernel kernel kernel kernel kernel kernel kernel";
	struct fdry_oid links[2], oid;
	struct fdry_writer *p;

	must(!fdry_writer_begin(s, &p));
	must(!fdry_writer_add_object(p, FDRY_OBJECT_KERNEL, text, sizeof(text), NULL, 0,
				     &links[0]));
	must(!fdry_writer_add_object(p, FDRY_OBJECT_GRAPH, "graph", 5, links, 1, &links[1]));
	must(!fdry_writer_commit(p, "manifest", 8, links, 2, NULL, &oid, NULL));
	return oid;
}

static void begin(void)
{
	struct fdry_pack_image images[2] = { { .name = NULL }, { .name = "a/name" } };
	struct fdry_pack_report r;

	snprintf(dir, sizeof(dir), "%s/foundry-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	must(mkdtemp(dir) != NULL);
	atexit(leave);
	from = store_in("from");
	to = store_in("to");
	images[0].oid = images[1].oid = seal(from);
	must(!fdry_pack_export(from, images, 2, &(struct fdry_pack_opts){ .threads = 1 }, append,
			       &good, &r));
}

/* --- reading --- */

struct input {
	struct fdry_span s;
	size_t at;
};

static int read_some(void *arg, void *data, size_t len, size_t *got)
{
	struct input *in = arg;
	size_t left = in->s.len - in->at;

	len = len < left ? len : left;
	if (len)
		memcpy(data, in->s.data + in->at, len);
	in->at += len;
	*got = len;
	return 0;
}

static int read_object(struct fdry_pack_reader *r)
{
	struct fdry_buf links = { 0 }, body = { 0 }, plain = { 0 };
	struct fdry_unpacker u = { 0 };
	struct fdry_pack_object o;
	struct fdry_oid oid;
	int err = fdry_pack_next(r, &o, &links);

	if (!err) {
		must(links.len == (size_t)o.nlinks * FDRY_OID_SIZE &&
		     o.size <= FDRY_OBJECT_SIZE_MAX && o.kinds);
		err = fdry_pack_body(r, &o, &body);
	}
	if (!err && !fdry_pack_unpack(&o, (struct fdry_span){ body.data, body.len }, &u, &plain))
		must(plain.len == o.size && !fdry_oid_of(plain.data, plain.len, &oid) &&
		     fdry_oid_eq(&oid, &o.oid));
	fdry_unpacker_release(&u);
	fdry_buf_release(&plain);
	fdry_buf_release(&body);
	fdry_buf_release(&links);
	return err;
}

static void try_read(struct fdry_span s)
{
	struct input in = { .s = s };
	struct fdry_pack_reader r;
	struct fdry_oid id;
	uint64_t i;
	int err = 0;

	if (fdry_pack_open(&r, read_some, &in))
		return;
	for (i = 0; i < r.nimages; i++)
		must(!r.images[i].name || !fdry_ref_check(r.images[i].name));
	for (i = 0; i < r.objects && !err; i++)
		err = read_object(&r);
	if (!err && !fdry_pack_end(&r, &id))
		must(r.bytes == r.bytes_read && r.objects == i && r.packed == in.at);
	fdry_pack_reader_release(&r);
}

/* --- importing --- */

static int pass(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return 0;
}

static void imported(void *arg, const struct fdry_pack_image *image, const struct fdry_oid *was)
{
	(void)arg, (void)was;
	must(!fdry_store_reach(to, &image->oid, pass, NULL));
}

static uint64_t changes(void)
{
	struct fdry_txn t;
	uint64_t n = 0;

	must(!fdry_txn_read(to->env->db, &t) && !fdry_ref_changes(&t, &n));
	fdry_txn_abort(&t);
	return n;
}

static void try_import(struct fdry_span s)
{
	struct fdry_pack_opts opts = { .threads = 1 };
	struct input in = { .s = s };
	struct fdry_pack_report r;
	uint64_t before = changes();

	if (fdry_pack_import(to, &opts, read_some, &in, imported, NULL, &r))
		must(changes() == before);
	else
		must(r.packed == in.at);
}

/* Each three bytes: where, and what. */
static void try_patches(struct fdry_span patches)
{
	struct fdry_buf b = { 0 };
	size_t i;

	must(!fdry_buf_put(&b, good.data, good.len));
	for (i = 0; i + 3 <= patches.len; i += 3)
		b.data[fdry_get16(patches.data + i) % b.len] = patches.data[i + 2];
	try_read((struct fdry_span){ b.data, b.len });
	try_import((struct fdry_span){ b.data, b.len });
	fdry_buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const ways[])(struct fdry_span) = { try_read, try_import, try_patches };

	if (!from)
		begin();
	if (len)
		ways[data[0] % 3]((struct fdry_span){ data + 1, len - 1 });
	return 0;
}
