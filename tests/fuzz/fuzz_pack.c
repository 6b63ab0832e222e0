// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_pack.c - untrusted packs: as bytes, and a good one with bytes replaced. The first byte of
 * the input selects how the rest is used. Objects that are read must be within the format's limits
 * and match their ids. Imported images must be whole. An import that fails must change no refs.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/internal.h"
#include "store/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static char dir[64];
static struct fdry_store *from, *to;
static struct fdry_buf good;
static int input; /* a file in memory */

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
	struct fdry_export_opts opts = { .sz = sizeof(opts), .threads = 1 };
	struct fdry_pack_report r = { .sz = sizeof(r) };
	char hex[FDRY_OID_HEX_SIZE];
	const char *names[] = { hex, "a/name" };
	struct fdry_oid oid;
	void *bytes = NULL;

	snprintf(dir, sizeof(dir), "%s/foundry-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	must(mkdtemp(dir) != NULL);
	atexit(leave);
	from = store_in("from");
	to = store_in("to");
	oid = seal(from);
	fdry_oid_hex(&oid, hex);
	must(!fdry_ref_set(from, names[1], &oid, NULL));
	input = memfd_create("input", MFD_CLOEXEC);
	must(input >= 0 && !fdry_store_export(from, names, 2, input, &opts, &r));
	must(!fdry_buf_grow(&good, r.packed, &bytes) &&
	     pread(input, bytes, r.packed, 0) == (ssize_t)r.packed);
}

/* --- reading --- */

static void input_set(struct fdry_span s)
{
	must(!ftruncate(input, 0) && pwrite(input, s.data, s.len, 0) == (ssize_t)s.len &&
	     !lseek(input, 0, SEEK_SET));
}

static uint64_t input_at(void)
{
	return (uint64_t)lseek(input, 0, SEEK_CUR);
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
	struct fdry_pack_reader r;
	struct fdry_oid id;
	uint64_t i;
	int err = 0;

	input_set(s);
	if (fdry_pack_open(&r, input))
		return;
	for (i = 0; i < r.nimages; i++)
		must(!r.images[i].name || !fdry_ref_check(r.images[i].name));
	for (i = 0; i < r.objects && !err; i++)
		err = read_object(&r);
	if (!err && !fdry_pack_end(&r, &id))
		must(r.bytes == r.bytes_read && r.objects == i && r.packed == input_at());
	fdry_pack_reader_release(&r);
}

/* --- importing --- */

static int pass(void *arg, const struct fdry_object_info *info)
{
	(void)arg, (void)info;
	return 0;
}

static void imported(void *arg, const char *id, const char *ref, const char *was)
{
	struct fdry_oid oid;

	(void)arg, (void)ref, (void)was;
	must(!fdry_oid_parse(id, &oid) && !fdry_store_reach(to, &oid, pass, NULL));
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
	struct fdry_import_opts opts = { .sz = sizeof(opts), .threads = 1, .image = imported };
	struct fdry_pack_report r = { .sz = sizeof(r) };
	uint64_t before = changes();

	input_set(s);
	if (fdry_store_import(to, input, &opts, &r))
		must(changes() == before);
	else
		must(r.packed == input_at());
}

/* Each three bytes are a patch: its offset and its value. */
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
