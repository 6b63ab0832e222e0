// SPDX-License-Identifier: Apache-2.0
/*
 * resolve.c - finding images by what a person types.
 *
 * NAME is a ref. NAME:DIGITS is one of its images. 64 digits are the id of an object; fewer digits
 * are the beginning of an image's id. Names have no colon, but may contain other signs, as in
 * model@a100.
 */
#include "store/internal.h"

#define PREFIX_MIN 4 /* digits of an abbreviated id */
#define SHOWN FDRY_REF_NAME_MAX /* bytes of a name that an error message shows */

static bool is_hex(const char *s, size_t len)
{
	return len <= 2 * FDRY_OID_SIZE && strspn(s, "0123456789abcdef") == len;
}

/* --- refs --- */

/* NAME or NAME:DIGITS, apart. */
struct selector {
	char name[FDRY_REF_NAME_MAX + 1];
	const char *digits; /* NULL: all that the name holds */
};

static int selector_parse(const char *text, struct selector *ret)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : strlen(text);
	size_t digits = colon ? strlen(colon + 1) : 0;

	if (colon && (digits < PREFIX_MIN || !is_hex(colon + 1, digits)))
		return fdry_fail(FDRY_E_NAME,
				 "'%.*s' names no image: behind the colon there must be %d to 64 "
				 "digits of its id",
				 SHOWN, text, PREFIX_MIN);
	if (len > FDRY_REF_NAME_MAX)
		return fdry_fail(FDRY_E_NAME,
				 "a ref's name has %zu bytes and may have %d; shorten it", len,
				 FDRY_REF_NAME_MAX);
	memcpy(ret->name, text, len);
	ret->name[len] = '\0';
	ret->digits = colon ? colon + 1 : NULL;
	return fdry_ref_check(ret->name);
}

static bool begins(const struct fdry_oid *oid, const char *digits)
{
	char hex[FDRY_OID_HEX_SIZE];

	return !strncmp(fdry_oid_hex(oid, hex), digits, strlen(digits));
}

/* Keep only images whose id begins with the digits. They must be one image, which may have several
 * identities. */
static int narrow(const struct selector *sel, struct fdry_buf *all)
{
	struct fdry_ref *ref = (void *)all->data;
	size_t i, n = 0;

	for (i = 0; i < all->len / sizeof(*ref); i++) {
		if (!begins(&ref[i].oid, sel->digits))
			continue;
		if (n && !fdry_oid_eq(&ref[0].oid, &ref[i].oid))
			return fdry_fail(FDRY_E_AMBIGUOUS,
					 "several images of '%s' begin with '%s'; give more digits",
					 sel->name, sel->digits);
		ref[n++] = ref[i];
	}
	all->len = n * sizeof(*ref);
	if (!n)
		return fdry_fail(
			FDRY_E_NOENT,
			"no image of '%s' has an id that begins with '%s'; see foundry-store ls",
			sel->name, sel->digits);
	return 0;
}

static int no_such_ref(const char *name)
{
	return fdry_fail(FDRY_E_NOENT, "there is no ref '%s' in the store; see foundry-store ls",
			 name);
}

/* The images of a name; a name without images is no error. */
static int selector_find(struct fdry_txn *t, const struct selector *sel, struct fdry_buf *ret)
{
	struct fdry_buf all = { 0 };
	int err = fdry_ref_images(t, sel->name, &all);

	if (err)
		goto out_release;
	if (sel->digits)
		err = all.len ? narrow(sel, &all) : no_such_ref(sel->name);
	if (err)
		goto out_release;
	err = fdry_buf_put(ret, all.data, all.len);
out_release:
	fdry_buf_release(&all);
	return err;
}

int fdry_ref_select(struct fdry_txn *t, const char *name, struct fdry_buf *ret)
{
	size_t before = ret->len;
	struct selector sel;
	int err = selector_parse(name, &sel);

	if (err)
		return err;
	err = selector_find(t, &sel, ret);
	if (err)
		return err;
	if (ret->len == before)
		return no_such_ref(name);
	return 0;
}

/* --- ids --- */

struct prefix {
	struct fdry_oid oid;
	unsigned int matches; /* 2: enough to know that it is ambiguous */
};

static int prefix_match(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	struct prefix *p = arg;

	if (!(rec->kinds & 1u << FDRY_OBJECT_MANIFEST))
		return 0;
	p->oid = *oid;
	return ++p->matches == 2 ? FDRY_EACH_STOP : 0;
}

static int prefix_resolve(struct fdry_txn *t, const char *digits, struct fdry_oid *ret)
{
	struct prefix p = { .matches = 0 };
	int err = fdry_record_each(t, digits, prefix_match, &p);

	if (err)
		return err;
	if (p.matches > 1)
		return fdry_fail(FDRY_E_AMBIGUOUS,
				 "several images begin with '%s'; give more digits", digits);
	if (!p.matches)
		return fdry_fail(FDRY_E_NOENT,
				 "there is no ref '%s' and no image whose id begins so; see "
				 "foundry-store ls",
				 digits);
	*ret = p.oid;
	return 0;
}

static int id_resolve(struct fdry_txn *t, const char *hex, struct fdry_oid *ret)
{
	struct fdry_record rec;
	struct fdry_oid oid;
	int err = fdry_oid_parse(hex, &oid);

	if (err)
		return err;
	err = fdry_record_need(t, &oid, &rec);
	if (err)
		return err;
	*ret = oid;
	return 0;
}

/* --- anything --- */

int fdry_ref_resolve_all(struct fdry_txn *t, const char *name, struct fdry_buf *ret)
{
	size_t len = strlen(name), before = ret->len;
	struct fdry_ref one = { .change = 0 };
	bool digits = is_hex(name, len);
	struct selector sel;
	int err;

	if (digits && len == 2 * FDRY_OID_SIZE) {
		err = id_resolve(t, name, &one.oid);
		return err ? err : fdry_buf_put(ret, &one, sizeof(one));
	}
	err = selector_parse(name, &sel) ?: selector_find(t, &sel, ret);
	if (err || ret->len > before)
		return err;
	if (!digits || len < PREFIX_MIN)
		return no_such_ref(name);
	err = prefix_resolve(t, name, &one.oid);
	return err ? err : fdry_buf_put(ret, &one, sizeof(one));
}

/* fdry_store_resolve() in a transaction: the first of them. */
static int ref_resolve(struct fdry_txn *t, const char *name, struct fdry_oid *ret)
{
	struct fdry_buf all = { 0 };
	int err = fdry_ref_resolve_all(t, name, &all);

	if (!err)
		*ret = ((const struct fdry_ref *)all.data)->oid;
	fdry_buf_release(&all);
	return err;
}

int fdry_store_resolve(struct fdry_store *s, const char *name, struct fdry_oid *ret)
{
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = ref_resolve(&t, name, ret);
	fdry_txn_abort(&t);
	return err;
}
