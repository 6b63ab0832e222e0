// SPDX-License-Identifier: Apache-2.0
/*
 * ref.c - names for images: the table refs, one record for each name and identity.
 *
 * The store has a change counter, whose value is written into each record that is set. A seal notes
 * the counter at its beginning, so that at its end it recognises a ref that was set in between. The
 * counter also orders the images of one name by age.
 */
#include <stdlib.h>

#include "store/internal.h"

/* A key of the table, and the part of it that all images of a name share. */
struct key {
	uint8_t b[FDRY_REF_KEY_MAX];
	size_t len;
};

static struct fdry_span key_of_name(struct key *k, const char *name)
{
	k->len = strlen(name) + 1;
	memcpy(k->b, name, k->len);
	return (struct fdry_span){ k->b, k->len };
}

static struct fdry_span key_of(struct key *k, const char *name, const struct fdry_oid *identity)
{
	key_of_name(k, name);
	memset(k->b + k->len, 0, FDRY_OID_SIZE);
	if (identity)
		memcpy(k->b + k->len, identity, FDRY_OID_SIZE);
	k->len += FDRY_OID_SIZE;
	return (struct fdry_span){ k->b, k->len };
}

/* --- names --- */

static bool component_valid(const char *s, size_t len)
{
	return len && !(len == 1 && *s == '.') && !(len == 2 && s[0] == '.' && s[1] == '.');
}

int fdry_ref_check(const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+/=";
	size_t len = strlen(name), at = 0, n;

	if (len > FDRY_REF_NAME_MAX)
		return fdry_fail(FDRY_E_NAME,
				 "a ref's name has %zu bytes and may have %d; shorten it", len,
				 FDRY_REF_NAME_MAX);
	if (strspn(name, allowed) != len)
		return fdry_fail(
			FDRY_E_NAME,
			"'%.*s' is not a ref's name; use letters, digits and - _ . @ + / = only",
			FDRY_REF_NAME_MAX, name);
	if (*name == '-')
		return fdry_fail(FDRY_E_NAME,
				 "'%s' would be taken for an option; begin a ref's name otherwise",
				 name);
	if (len == 2 * FDRY_OID_SIZE && strspn(name, "0123456789abcdef") == len)
		return fdry_fail(FDRY_E_NAME, "'%s' looks like an object id; name a ref otherwise",
				 name);
	do {
		n = strcspn(name + at, "/");
		if (!component_valid(name + at, n))
			return fdry_fail(FDRY_E_NAME,
					 "'%s' is not a ref's name: a part of it is empty, . or ..",
					 name);
		at += n + 1;
	} while (at <= len);
	return 0;
}

/* --- the counter --- */

int fdry_ref_changes(struct fdry_txn *t, uint64_t *ret)
{
	struct fdry_span value;
	const void *p;
	int err = fdry_meta_get(t, FDRY_META_CHANGES, &value);

	if (err)
		return err;
	p = value.data ? fdry_span_at(value, 0, 8) : NULL;
	*ret = p ? fdry_get64(p) : 0;
	return 0;
}

static int changes_bump(struct fdry_txn *t, uint64_t *ret)
{
	uint8_t value[8];
	uint64_t n = 0;
	int err = fdry_ref_changes(t, &n);

	if (err)
		return err;
	fdry_set64(value, n + 1);
	err = fdry_meta_put(t, FDRY_META_CHANGES, value, sizeof(value));
	if (err)
		return err;
	*ret = n + 1;
	return 0;
}

/* --- records --- */

int fdry_ref_parse(struct fdry_span value, struct fdry_ref *ret)
{
	static const uint8_t zero[FDRY_REF_SIZE - FDRY_REF_AT_ZERO];
	const uint8_t *p = fdry_span_at(value, 0, FDRY_REF_SIZE);
	uint32_t flags = p ? fdry_get32(p + FDRY_REF_AT_FLAGS) : 0;

	if (!p || value.len != FDRY_REF_SIZE || flags & ~(uint32_t)FDRY_REF_PINNED ||
	    memcmp(p + FDRY_REF_AT_ZERO, zero, sizeof(zero)))
		return fdry_fail(FDRY_E_CORRUPT,
				 "a ref's record is damaged; delete the ref and seal anew");
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->oid.b, p + FDRY_REF_AT_OID, FDRY_OID_SIZE);
	ret->change = fdry_get64(p + FDRY_REF_AT_CHANGE);
	ret->pinned = flags & FDRY_REF_PINNED;
	return 0;
}

/* Parse name and identity; the name is valid whatever program wrote the key. */
static bool key_parse(struct fdry_span key, struct fdry_ref *ret)
{
	size_t len = key.len - FDRY_OID_SIZE - 1;

	if (key.len < 1 + 1 + FDRY_OID_SIZE || key.len > FDRY_REF_KEY_MAX || key.data[len] ||
	    memchr(key.data, 0, len))
		return false;
	memcpy(ret->name, key.data, len + 1);
	memcpy(ret->identity.b, key.data + len + 1, FDRY_OID_SIZE);
	return !fdry_ref_check(ret->name);
}

int fdry_ref_parse_entry(struct fdry_span key, struct fdry_span value, struct fdry_ref *ret)
{
	int err = fdry_ref_parse(value, ret);

	if (err)
		return err;
	if (!key_parse(key, ret))
		return fdry_fail(FDRY_E_CORRUPT,
				 "a ref has a damaged name of %zu bytes; " FDRY_DAMAGE_ADVICE,
				 key.len);
	return 0;
}

int fdry_ref_find(struct fdry_txn *t, const char *name, const struct fdry_oid *identity,
		  bool *found, struct fdry_ref *ret)
{
	struct fdry_span value;
	struct key k;
	int err = fdry_txn_get(t, FDRY_TABLE_REFS, key_of(&k, name, identity), &value);

	if (!err && value.data)
		err = fdry_ref_parse_entry((struct fdry_span){ k.b, k.len }, value, ret);
	if (err)
		return fdry_fail_at(err, "ref '%s'", name);
	*found = value.data != NULL;
	return 0;
}

/* By name, then the newest first. */
static int ref_cmp(const void *a, const void *b)
{
	const struct fdry_ref *x = a, *y = b;
	int cmp = strcmp(x->name, y->name);

	if (cmp)
		return cmp;
	return x->change > y->change ? -1 : x->change < y->change;
}

/* Images of one name, or of all. */
struct listing {
	struct fdry_span name; /* the beginning of their keys */
	struct fdry_buf *refs;
};

static bool is_listed(const struct listing *l, struct fdry_span key)
{
	return key.len >= l->name.len &&
	       (!l->name.len || !memcmp(key.data, l->name.data, l->name.len));
}

static int ref_put(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct listing *l = arg;
	struct fdry_ref ref;
	int err;

	if (!is_listed(l, key))
		return FDRY_EACH_STOP;
	err = fdry_ref_parse_entry(key, value, &ref);
	if (err)
		return fdry_fail_at(err, "ref '%.*s'", (int)key.len, (const char *)key.data);
	return fdry_buf_put(l->refs, &ref, sizeof(ref));
}

int fdry_ref_images(struct fdry_txn *t, const char *name, struct fdry_buf *ret)
{
	struct fdry_buf refs = { 0 };
	struct listing l = { .refs = &refs };
	struct key k;
	int err;

	if (name)
		l.name = key_of_name(&k, name);
	err = fdry_txn_each(t, FDRY_TABLE_REFS, l.name, ref_put, &l);
	if (!err && refs.len) {
		qsort(refs.data, refs.len / sizeof(struct fdry_ref), sizeof(struct fdry_ref),
		      ref_cmp);
		err = fdry_buf_put(ret, refs.data, refs.len);
	}
	fdry_buf_release(&refs);
	return err;
}

static int key_put(void *arg, struct fdry_span key, struct fdry_span value)
{
	struct fdry_ref ref = { .change = 0 };
	struct listing *l = arg;

	if (!is_listed(l, key))
		return FDRY_EACH_STOP;
	return key_parse(key, &ref) ? fdry_buf_put(l->refs, &ref, sizeof(ref))
				    : ref_put(arg, key, value);
}

int fdry_ref_images_unread(struct fdry_txn *t, const char *name, struct fdry_buf *ret)
{
	struct listing l = { .refs = ret };
	struct key k;

	l.name = key_of_name(&k, name);
	return fdry_txn_each(t, FDRY_TABLE_REFS, l.name, key_put, &l);
}

/* --- writing --- */

int fdry_ref_write(struct fdry_txn *t, const struct fdry_ref *ref)
{
	uint8_t rec[FDRY_REF_SIZE] = { 0 };
	struct key k;

	memcpy(rec + FDRY_REF_AT_OID, ref->oid.b, FDRY_OID_SIZE);
	fdry_set64(rec + FDRY_REF_AT_CHANGE, ref->change);
	fdry_set32(rec + FDRY_REF_AT_FLAGS, ref->pinned ? FDRY_REF_PINNED : 0);
	return fdry_txn_put(t, FDRY_TABLE_REFS, key_of(&k, ref->name, &ref->identity),
			    (struct fdry_span){ rec, sizeof(rec) });
}

int fdry_ref_remove(struct fdry_txn *t, const struct fdry_ref *ref)
{
	uint64_t change = 0;
	struct key k;
	int err = fdry_txn_delete(t, FDRY_TABLE_REFS, key_of(&k, ref->name, &ref->identity));

	return err ? err : changes_bump(t, &change);
}

/* If a name holds as many images as it may, remove the oldest one that is not pinned. */
static int oldest_remove(struct fdry_txn *t, const char *name)
{
	struct fdry_buf all = { 0 };
	const struct fdry_ref *ref;
	size_t n;
	int err = fdry_ref_images(t, name, &all);

	ref = (const void *)all.data;
	n = all.len / sizeof(*ref);
	if (err || n < FDRY_REF_IMAGES_MAX)
		goto out_release;
	while (n && ref[n - 1].pinned)
		n--;
	err = n ? fdry_ref_remove(t, &ref[n - 1])
		: fdry_fail(FDRY_E_LIMIT,
			    "the ref '%s' holds %d images and all are pinned; remove or unpin one, "
			    "or use another name",
			    name, FDRY_REF_IMAGES_MAX);
out_release:
	fdry_buf_release(&all);
	return err;
}

int fdry_ref_store(struct fdry_txn *t, const char *name, const struct fdry_oid *oid,
		   const struct fdry_oid *identity)
{
	struct fdry_ref ref = { .change = 0 }, old;
	bool found = false;
	int err = fdry_ref_find(t, name, identity, &found, &old);

	if (err)
		return err;
	err = found ? 0 : oldest_remove(t, name);
	if (err)
		return err;
	err = changes_bump(t, &ref.change);
	if (err)
		return err;
	memcpy(ref.name, name, strlen(name) + 1);
	ref.oid = *oid;
	if (identity)
		ref.identity = *identity;
	ref.pinned = found && old.pinned;
	return fdry_ref_write(t, &ref);
}
