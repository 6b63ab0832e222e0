// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_store.c - untrusted records, names and objects of a store. A value that parses must be
 * consistent: links inside the value, sizes within limits. An object with an untrusted record or
 * bytes can be read only if it matches its id. The first byte of the input selects the meaning of
 * the rest.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/printable.h"
#include "store/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(int ok)
{
	if (!ok)
		abort();
}

static void record(struct fdry_span value)
{
	struct fdry_object_info info;
	struct fdry_record r;
	struct fdry_oid link;
	uint32_t i;

	if (fdry_record_parse(value, &r))
		return;
	must(r.links.len == (size_t)r.nlinks * FDRY_OID_SIZE && r.stored <= r.size &&
	     r.size <= FDRY_OBJECT_SIZE_MAX);
	for (i = 0; i < r.nlinks; i++) {
		link = fdry_record_link(&r, i);
		must(!memcmp(link.b, value.data + FDRY_RECORD_AT_LINKS + (size_t)i * FDRY_OID_SIZE,
			     FDRY_OID_SIZE));
	}
	fdry_record_info(&link, &r, &info);
	must(info.kinds & 1u << info.kind);
}

static void ref(struct fdry_span value)
{
	struct fdry_ref r;

	must(fdry_ref_parse(value, &r) || value.len == FDRY_REF_SIZE);
}

/* Nothing that a terminal obeys. */
static bool is_harmless(const char *sentence)
{
	size_t n, len = strlen(sentence);
	uint32_t c;

	for (; len; sentence += n, len -= n) {
		n = fdry_utf8_next(sentence, len, &c);
		if (!n || !fdry_is_printable(c))
			return false;
	}
	return true;
}

static void name(struct fdry_span value)
{
	char *s = malloc(value.len + 1);
	size_t n;

	must(s != NULL);
	if (value.len)
		memcpy(s, value.data, value.len);
	s[value.len] = '\0';
	n = strlen(s);
	if (!fdry_ref_check(s))
		must(n && n <= FDRY_REF_NAME_MAX && s[0] != '/' && s[n - 1] != '/' &&
		     !strstr(s, "//") && !strstr(s, "/../"));
	else
		must(is_harmless(fdry_last_error()));
	free(s);
}

/* The input is a byte with the key's length, the key, and the record. Check that a ref read from it
 * has a valid name. */
static void entry(struct fdry_span value)
{
	size_t n = value.len ? value.data[0] : 0;
	struct fdry_ref r;

	if (value.len < 1 + n)
		return;
	if (!fdry_ref_parse_entry((struct fdry_span){ value.data + 1, n },
				  (struct fdry_span){ value.data + 1 + n, value.len - 1 - n }, &r))
		must(!fdry_ref_check(r.name) && strlen(r.name) + 1 + FDRY_OID_SIZE == n);
	else
		must(is_harmless(fdry_last_error()));
}

/* --- objects, in a transaction that is never committed --- */

static char dir[64];
static struct fdry_store *store;

static int rm_one(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static void leave(void)
{
	nftw(dir, rm_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void begin(void)
{
	snprintf(dir, sizeof(dir), "%s/foundry-fuzz-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	must(mkdtemp(dir) != NULL);
	atexit(leave);
	must(!fdry_store_open(dir, FDRY_STORE_CREATE, &store));
}

/* Resolving: a name, a name with digits, or an id. */
static void wanted(struct fdry_span value)
{
	struct fdry_oid oid;
	char *s = malloc(value.len + 1);

	must(s != NULL);
	if (!store)
		begin();
	if (value.len)
		memcpy(s, value.data, value.len);
	s[value.len] = '\0';
	must(fdry_store_resolve(store, s, &oid) &&
	     is_harmless(fdry_last_error())); /* the store is empty */
	free(s);
}

static void object_look(struct fdry_txn *t, const struct fdry_oid *oid)
{
	struct fdry_unpacker u = { 0 };
	struct fdry_buf copy = { 0 }, scratch = { 0 };
	struct fdry_record rec;
	struct fdry_oid is;
	bool found = false;
	int err = fdry_object_read(t, oid, &u, &copy);

	must(err || (!fdry_oid_of(copy.data, copy.len, &is) && fdry_oid_eq(&is, oid)));
	if (!fdry_record_get(t, oid, &found, &rec))
		must(!found || !fdry_object_check(t, oid, &rec, &u, &scratch) == !err);
	must(!fdry_quarantine(t, oid) || err);
	must(!err || err == -FDRY_E_VERSION || fdry_object_read(t, oid, &u, &copy));
	fdry_unpacker_release(&u);
	fdry_buf_release(&copy);
	fdry_buf_release(&scratch);
}

/* A byte for how long the record is, the record, and the bytes at rest. */
static void object(struct fdry_span value)
{
	size_t n = value.len ? value.data[0] : 0;
	struct fdry_span rec, bytes;
	struct fdry_oid oid;
	struct fdry_txn t;

	if (!store)
		begin();
	if (value.len < 1 + n)
		return;
	rec = (struct fdry_span){ value.data + 1, n };
	bytes = (struct fdry_span){ value.data + 1 + n, value.len - 1 - n };
	must(!fdry_oid_of(bytes.data, bytes.len, &oid));
	must(!fdry_txn_write(store->env->db, 1 << 20, &t));
	must(!fdry_txn_put(&t, FDRY_TABLE_OBJECTS, fdry_oid_span(&oid), rec));
	must(!fdry_txn_put(&t, FDRY_TABLE_DATA, fdry_oid_span(&oid), bytes));
	object_look(&t, &oid);
	fdry_txn_abort(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const ways[])(
		struct fdry_span) = { record, ref, name, object, entry, wanted };

	if (len)
		ways[data[0] % 6]((struct fdry_span){ data + 1, len - 1 });
	return 0;
}
