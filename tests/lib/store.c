// SPDX-License-Identifier: Apache-2.0
/* store.c - see store.h. */
#include "tests/lib/store.h"

#include <dirent.h>

char dir[256];
char path[300];

int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

void dir_setup_in(const char *base)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/foundry-test-XXXXXX",
		 base && !access(base, W_OK) ? base
		 : tmp ? tmp
					     : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/store", dir);
}

void dir_setup(void)
{
	dir_setup_in(NULL);
}

void dir_teardown(void)
{
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

const struct fdry_gc_opts gc_dry_run = { .sz = sizeof(gc_dry_run), .flags = FDRY_GC_DRY_RUN };

struct fdry_store *store_make(void)
{
	struct fdry_store *s = NULL;

	ok(fdry_store_open(path, FDRY_STORE_CREATE, &s));
	return s;
}

void noise(uint64_t seed, void *to, size_t len)
{
	uint64_t x = seed * 0x9E3779B97F4A7C15u + 1, word;
	uint8_t *p = to;
	size_t at, i, n;

	/* Sanitizers check each write, so eight bytes are written at once. */
	for (at = 0; at < len; at += n) {
		n = len - at < sizeof(word) ? len - at : sizeof(word);
		for (word = 0, i = 0; i < sizeof(word); i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			word |= (x >> 32 & 0xff) << 8 * i;
		}
		word = htole64(word);
		if (n == sizeof(word))
			memcpy(p + at, &word, sizeof(word));
		else
			memcpy(p + at, &word, n);
	}
}

struct fdry_oid oid_of(const void *data, size_t len)
{
	struct fdry_oid oid;

	ok(fdry_oid_of(data, len, &oid));
	return oid;
}

struct fdry_oid put(struct fdry_writer *p, enum fdry_object_kind kind, const void *data, size_t len)
{
	struct fdry_oid oid;

	ok(fdry_writer_add_object(p, kind, data, len, NULL, 0, &oid));
	return oid;
}

struct fdry_oid seal(struct fdry_store *s, uint64_t seed, size_t n, size_t len, const char *ref)
{
	struct fdry_oid *links = calloc(n, sizeof(*links)), oid;
	uint8_t *data = malloc(len);
	struct fdry_writer *p;
	char text[64];
	size_t i;

	ok(fdry_writer_begin(s, &p));
	for (i = 0; i < n; i++) {
		noise(seed + i, data, len);
		links[i] = put(p, FDRY_OBJECT_CHUNK, data, len);
	}
	snprintf(text, sizeof(text), "image %llu %zu %zu", (unsigned long long)seed, n, len);
	ok(fdry_writer_commit(p, text, strlen(text), links, n, ref, &oid, NULL));
	free(data);
	free(links);
	return oid;
}

void check_object(struct fdry_reader *g, const struct fdry_oid *oid, const void *want, size_t len)
{
	struct fdry_buf b = { 0 };

	ok(fdry_reader_copy(g, oid, &b));
	ck_assert_uint_eq(b.len, len);
	ck_assert(!memcmp(b.data, want, len));
	fdry_buf_release(&b);
}

int store_verify(struct fdry_store *s, struct fdry_verify_report *ret)
{
	*ret = (struct fdry_verify_report){ .sz = sizeof(*ret) };
	return fdry_store_verify(fdry_store_path(s), NULL, ret);
}

void check_sound(struct fdry_store *s)
{
	struct fdry_verify_report r;

	ok(store_verify(s, &r));
	ck_assert_uint_eq(r.faults + r.damaged + r.missing + r.broken + r.dangling + r.crashes, 0);
}

void spoil_record(struct fdry_store *s, const struct fdry_oid *oid)
{
	struct fdry_txn t;

	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	ok(fdry_txn_put(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(oid),
			(struct fdry_span){ oid->b, 5 }));
	ok(fdry_txn_commit(&t));
}

void spoil_data(struct fdry_store *s, const struct fdry_oid *oid)
{
	struct fdry_span value;
	uint8_t bytes[8192];
	struct fdry_txn t;

	ok(fdry_txn_write(s->env->db, 1 << 20, &t));
	ok(fdry_txn_get(&t, FDRY_TABLE_DATA, fdry_oid_span(oid), &value));
	ck_assert(value.data && value.len <= sizeof(bytes));
	memset(bytes, 1, value.len);
	ok(fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(oid),
			(struct fdry_span){ bytes, value.len }));
	ok(fdry_txn_commit(&t));
}

unsigned int lease_files(void)
{
	char folder[400];
	unsigned int n = 0;
	struct dirent *e;
	DIR *d;

	snprintf(folder, sizeof(folder), "%s/leases", path);
	d = opendir(folder);
	while (d && (e = readdir(d)))
		n += *e->d_name != '.';
	if (d)
		closedir(d);
	return n;
}
