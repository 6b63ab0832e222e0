// SPDX-License-Identifier: Apache-2.0
/*
 * ref.c - names for images, and finding an image by what a person types.
 *
 * A change counter in the store is written into each ref that is set: a seal notes it at
 * its beginning and so recognises at its end a ref that somebody set in between.
 */
#include <stdlib.h>

#include "store/internal.h"

#define PREFIX_MIN 4 /* digits of an abbreviated id */

/* --- names --- */

static bool is_hex(const char *s, size_t len)
{
	return len <= 2 * FDRY_OID_SIZE && strspn(s, "0123456789abcdef") == len;
}

static bool component_valid(const char *s, size_t len)
{
	return len && !(len == 1 && *s == '.') && !(len == 2 && s[0] == '.' && s[1] == '.');
}

int fdry_ref_check(const char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+/=";
	size_t len = strlen(name), at = 0, n;

	if (len > FDRY_REF_NAME_MAX)
		return fdry_fail(FDRY_E_NAME, "a ref's name has %zu bytes and may have %d; shorten it", len, FDRY_REF_NAME_MAX);
	if (strspn(name, allowed) != len)
		return fdry_fail(FDRY_E_NAME, "'%s' is not a ref's name; use letters, digits and - _ . @ + / = only", name);
	if (len == 2 * FDRY_OID_SIZE && is_hex(name, len))
		return fdry_fail(FDRY_E_NAME, "'%s' looks like an object id; name a ref otherwise", name);
	do {
		n = strcspn(name + at, "/");
		if (!component_valid(name + at, n))
			return fdry_fail(FDRY_E_NAME, "'%s' is not a ref's name: a part of it is empty, . or ..", name);
		at += n + 1;
	} while (at <= len);
	return 0;
}

/* --- records --- */

static struct fdry_span name_span(const char *name)
{
	return (struct fdry_span){ (const uint8_t *)name, strlen(name) };
}

int fdry_ref_changes(struct fdry_txn *t, uint64_t *ret)
{
	struct fdry_span value;
	const void *p;
	int err = fdry_txn_get(t, FDRY_TABLE_META, name_span(FDRY_META_CHANGES), &value);

	if (err)
		return err;
	p = value.data ? fdry_span_at(value, 0, 8) : NULL;
	*ret = p ? fdry_get64(p) : 0;
	return 0;
}

static int changes_write(struct fdry_txn *t, uint64_t n)
{
	uint8_t value[8];

	fdry_set64(value, n);
	return fdry_txn_put(t, FDRY_TABLE_META, name_span(FDRY_META_CHANGES), (struct fdry_span){ value, sizeof(value) });
}

int fdry_ref_touch(struct fdry_txn *t)
{
	uint64_t n = 0;
	int err = fdry_ref_changes(t, &n);

	return err ? err : changes_write(t, n);
}

static int changes_bump(struct fdry_txn *t, uint64_t *ret)
{
	uint64_t n = 0;
	int err = fdry_ref_changes(t, &n);

	if (!err)
		err = changes_write(t, n + 1);
	if (!err)
		*ret = n + 1;
	return err;
}

int fdry_ref_parse(struct fdry_span value, struct fdry_ref *ret)
{
	static const uint8_t zero[FDRY_REF_SIZE - FDRY_REF_AT_ZERO];
	const uint8_t *p = fdry_span_at(value, 0, FDRY_REF_SIZE);

	if (!p || value.len != FDRY_REF_SIZE || memcmp(p + FDRY_REF_AT_ZERO, zero, sizeof(zero)))
		return fdry_fail(FDRY_E_CORRUPT, "a ref's record is damaged; delete the ref and seal anew");
	memcpy(ret->oid.b, p + FDRY_REF_AT_OID, FDRY_OID_SIZE);
	ret->change = fdry_get64(p + FDRY_REF_AT_CHANGE);
	return 0;
}

int fdry_ref_find(struct fdry_txn *t, const char *name, bool *found, struct fdry_ref *ret)
{
	struct fdry_span value;
	int err = fdry_txn_get(t, FDRY_TABLE_REFS, name_span(name), &value);

	if (!err && value.data)
		err = fdry_ref_parse(value, ret);
	if (err)
		return fdry_fail_at(err, "ref '%s'", name);
	*found = value.data != NULL;
	return 0;
}

int fdry_ref_store(struct fdry_txn *t, const char *name, const struct fdry_oid *oid)
{
	uint8_t rec[FDRY_REF_SIZE] = { 0 };
	uint64_t change = 0;
	int err = changes_bump(t, &change);

	if (err)
		return err;
	memcpy(rec + FDRY_REF_AT_OID, oid->b, FDRY_OID_SIZE);
	fdry_set64(rec + FDRY_REF_AT_CHANGE, change);
	return fdry_txn_put(t, FDRY_TABLE_REFS, name_span(name), (struct fdry_span){ rec, sizeof(rec) });
}

/* --- setting --- */

static int must_exist(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	char hex[FDRY_OID_HEX_SIZE];

	(void)arg;
	if (rec)
		return 0;
	return fdry_fail(FDRY_E_NOENT, "it needs object %s, which is not in the store; seal it anew", fdry_oid_hex(oid, hex));
}

/* An image can be named while it is whole: half of it may be gone where a collection was interrupted. */
static int image_check(struct fdry_txn *t, const struct fdry_oid *oid)
{
	struct fdry_idset seen = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(t, oid, &rec);

	if (!err && !(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		err = fdry_fail(FDRY_E_INVAL, "object %s is not an image; only images can be named", fdry_oid_hex(oid, hex));
	if (!err)
		err = fdry_reach(t, oid, &seen, must_exist, NULL);
	fdry_idset_release(&seen);
	return err;
}

static int ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid)
{
	struct fdry_txn t;
	int err = fdry_txn_write(s->env->db, FDRY_REF_SIZE, &t);

	if (err)
		return err;
	err = image_check(&t, oid);
	if (!err)
		err = fdry_ref_store(&t, name, oid);
	if (!err)
		return fdry_txn_commit(&t);
	fdry_txn_abort(&t);
	return err;
}

int fdry_ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid)
{
	int err = fdry_store_check_write(s);

	if (!err)
		err = fdry_ref_check(name);
	if (!err)
		err = fdry_env_share(s->env); /* a collection may be about to remove it */
	if (err)
		return err;
	err = ref_set(s, name, oid);
	fdry_env_unshare(s->env);
	return err;
}

static int no_such_ref(const char *name)
{
	return fdry_fail(FDRY_E_NOENT, "there is no ref '%s' in the store; see foundry-store ls", name);
}

int fdry_ref_delete(struct fdry_store *s, const char *name)
{
	struct fdry_span value = { 0 };
	uint64_t change = 0;
	struct fdry_txn t;
	int err = fdry_store_check_write(s);

	if (!err)
		err = fdry_ref_check(name);
	if (!err)
		err = fdry_txn_write(s->env->db, FDRY_REF_SIZE, &t);
	if (err)
		return err;
	err = fdry_txn_get(&t, FDRY_TABLE_REFS, name_span(name), &value);
	if (!err && !value.data)
		err = no_such_ref(name);
	if (!err)
		err = fdry_txn_delete(&t, FDRY_TABLE_REFS, name_span(name));
	if (!err)
		err = changes_bump(&t, &change);
	if (!err)
		return fdry_txn_commit(&t);
	fdry_txn_abort(&t);
	return err;
}

/* --- finding --- */

int fdry_ref_get(struct fdry_store *s, const char *name, struct fdry_oid *ret)
{
	struct fdry_ref ref;
	bool found = false;
	struct fdry_txn t;
	int err = fdry_store_check(s);

	if (!err)
		err = fdry_ref_check(name);
	if (!err)
		err = fdry_txn_read(s->env->db, &t);
	if (err)
		return err;
	err = fdry_ref_find(&t, name, &found, &ref);
	fdry_txn_abort(&t);
	if (!err && !found)
		err = no_such_ref(name);
	if (!err)
		*ret = ref.oid;
	return err;
}

struct named {
	struct fdry_oid oid;
	char name[FDRY_REF_NAME_MAX + 1];
};

static int named_put(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct named n = { 0 };
	struct fdry_ref ref;
	int err = fdry_ref_parse(value, &ref);

	if (!err && key.len > FDRY_REF_NAME_MAX)
		err = fdry_fail(FDRY_E_CORRUPT, "a ref has a name of %zu bytes; run foundry-store verify", key.len);
	if (err)
		return err;
	n.oid = ref.oid;
	memcpy(n.name, key.data, key.len);
	return fdry_buf_put(arg, &n, sizeof(n));
}

int fdry_ref_each(struct fdry_store *s, fdry_ref_fn fn, void *arg)
{
	struct fdry_buf all = { 0 };
	const struct named *n;
	struct fdry_txn t;
	size_t i;
	int err = fdry_store_check(s);

	if (!err)
		err = fdry_txn_read(s->env->db, &t);
	if (err)
		return err;
	err = fdry_txn_each(&t, FDRY_TABLE_REFS, (struct fdry_span){ 0 }, named_put, &all);
	fdry_txn_abort(&t);
	n = (const void *)all.data;
	for (i = 0; i < all.len / sizeof(*n) && !err; i++)
		err = fn(arg, n[i].name, &n[i].oid);
	fdry_buf_release(&all);
	return err;
}

/* --- resolving --- */

struct prefix {
	const char *digits;
	size_t len;
	struct fdry_oid oid;
	unsigned int matches; /* 2: enough to know that it is ambiguous */
};

static int prefix_match(void *arg, struct fdry_span key, struct fdry_span value)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct prefix *p = arg;
	struct fdry_record rec;
	struct fdry_oid oid;
	int err = fdry_record_parse(value, &rec);

	if (err || key.len != FDRY_OID_SIZE)
		return err ? err : FDRY_EACH_STOP;
	memcpy(oid.b, key.data, FDRY_OID_SIZE);
	if (strncmp(fdry_oid_hex(&oid, hex), p->digits, p->len))
		return FDRY_EACH_STOP;
	if (!(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		return 0;
	p->oid = oid;
	return ++p->matches == 2 ? FDRY_EACH_STOP : 0;
}

static int prefix_resolve(struct fdry_txn *t, const char *digits, struct fdry_oid *ret)
{
	struct prefix p = { .digits = digits, .len = strlen(digits) };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_oid from;
	int err;

	memset(hex, '0', sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	memcpy(hex, digits, p.len);
	err = fdry_oid_parse(hex, &from);
	if (!err)
		err = fdry_txn_each(t, FDRY_TABLE_OBJECTS, fdry_oid_span(&from), prefix_match, &p);
	if (err)
		return err;
	if (p.matches > 1)
		return fdry_fail(FDRY_E_AMBIGUOUS, "several images begin with '%s'; give more digits", digits);
	if (!p.matches)
		return fdry_fail(FDRY_E_NOENT, "there is no ref '%s' and no image whose id begins so; see foundry-store ls", digits);
	*ret = p.oid;
	return 0;
}

static int resolve_id(struct fdry_txn *t, const char *hex, struct fdry_oid *ret)
{
	struct fdry_record rec;
	struct fdry_oid oid;
	int err = fdry_oid_parse(hex, &oid);

	if (!err)
		err = fdry_record_need(t, &oid, &rec);
	if (!err)
		*ret = oid;
	return err;
}

int fdry_ref_resolve(struct fdry_txn *t, const char *name, struct fdry_oid *ret)
{
	size_t len = strlen(name);
	struct fdry_ref ref;
	bool found = false;
	int err;

	if (len == 2 * FDRY_OID_SIZE && is_hex(name, len))
		return resolve_id(t, name, ret);
	err = fdry_ref_check(name);
	if (!err)
		err = fdry_ref_find(t, name, &found, &ref);
	if (err)
		return err;
	if (!found && len >= PREFIX_MIN && is_hex(name, len))
		return prefix_resolve(t, name, ret);
	if (!found)
		return no_such_ref(name);
	*ret = ref.oid;
	return 0;
}

int fdry_store_resolve(struct fdry_store *s, const char *name, struct fdry_oid *ret)
{
	struct fdry_txn t;
	int err = fdry_store_check(s);

	if (!err)
		err = fdry_txn_read(s->env->db, &t);
	if (err)
		return err;
	err = fdry_ref_resolve(&t, name, ret);
	fdry_txn_abort(&t);
	return err;
}
