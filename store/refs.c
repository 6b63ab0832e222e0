// SPDX-License-Identifier: Apache-2.0
/*
 * refs.c - setting, deleting, pinning and listing refs: one transaction each.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "store/internal.h"

/* --- setting --- */

static int must_exist(void *arg, const struct fdry_oid *oid, const struct fdry_record *rec)
{
	char hex[FDRY_OID_HEX_SIZE];

	(void)arg;
	if (rec)
		return 0;
	return fdry_fail(FDRY_E_NOENT,
			 "it needs object %s, which is not in the store; seal it anew",
			 fdry_oid_hex(oid, hex));
}

/* A ref may only name a whole image: an interrupted collection may have deleted a part of it. */
static int image_check(struct fdry_txn *t, const struct fdry_oid *oid)
{
	struct fdry_idset seen = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(t, oid, &rec);

	if (err)
		return err;
	if (!(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		return fdry_fail(FDRY_E_INVAL,
				 "object %s is not an image; only images can be named",
				 fdry_oid_hex(oid, hex));
	err = fdry_reach(t, oid, &seen, must_exist, NULL);
	fdry_idset_release(&seen);
	return err;
}

int fdry_ref_set(struct fdry_store *s, const char *name, const struct fdry_oid *oid,
		 const struct fdry_oid *identity)
{
	struct fdry_txn t;
	int err = fdry_store_check_write(s) ?: fdry_ref_check(name) ?:
		  fdry_txn_write(s->env->db, FDRY_REF_SIZE, &t);

	if (err)
		return err;
	/* A collection sees the ref before it deletes more. */
	err = image_check(&t, oid) ?: fdry_ref_store(&t, name, oid, identity);
	return fdry_txn_end(&t, err);
}

typedef int (*select_fn)(struct fdry_txn *t, const char *name, struct fdry_buf *ret);
typedef int (*change_fn)(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder);

/* In one transaction: call @fn for each image that @name names. */
static int each_selected(struct fdry_store *s, const char *name, select_fn select, change_fn fn,
			 uint64_t holder)
{
	struct fdry_buf refs = { 0 };
	struct fdry_txn t;
	size_t i;
	int err = fdry_store_check_write(s) ?: fdry_txn_write(s->env->db, FDRY_REF_SIZE, &t);

	if (err)
		return err;
	err = select(&t, name, &refs);
	for (i = 0; i < refs.len / sizeof(struct fdry_ref) && !err; i++)
		err = fn(&t, (const struct fdry_ref *)refs.data + i, holder);
	fdry_buf_release(&refs);
	return fdry_txn_end(&t, err);
}

/* All images of a name, even those with damaged records; or the image that NAME:DIGITS selects. */
static int delete_select(struct fdry_txn *t, const char *name, struct fdry_buf *ret)
{
	int err;

	if (strchr(name, ':'))
		return fdry_ref_select(t, name, ret);
	err = fdry_ref_check(name);
	if (err)
		return err;
	err = fdry_ref_images_unread(t, name, ret);
	if (err || ret->len)
		return err;
	return fdry_ref_select(t, name, ret); /* it reports that there is none */
}

static int removal(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder)
{
	(void)holder;
	return fdry_ref_remove(t, ref) ?: fdry_pin_forget(t, ref);
}

int fdry_store_remove(struct fdry_store *store, const char *name)
{
	return fdry_need(store) ?: fdry_need(name) ?:
	       each_selected(store, name, delete_select, removal, 0);
}

static int pin(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder)
{
	(void)holder;
	return fdry_pin_set(t, ref, true);
}

static int unpin(struct fdry_txn *t, const struct fdry_ref *ref, uint64_t holder)
{
	(void)holder;
	return fdry_pin_set(t, ref, false);
}

int fdry_store_pin(struct fdry_store *store, const char *name)
{
	return fdry_need(store) ?: fdry_need(name) ?:
	       each_selected(store, name, fdry_ref_select, pin, 0);
}

int fdry_store_unpin(struct fdry_store *store, const char *name)
{
	return fdry_need(store) ?: fdry_need(name) ?:
	       each_selected(store, name, fdry_ref_select, unpin, 0);
}

int fdry_ref_hold(struct fdry_store *s, const char *name, uint64_t holder)
{
	return each_selected(s, name, fdry_ref_select, fdry_pin_hold, holder);
}

int fdry_ref_unhold(struct fdry_store *s, const char *name, uint64_t holder)
{
	return each_selected(s, name, fdry_ref_select, fdry_pin_unhold, holder);
}

/* --- listing --- */

int fdry_ref_list(struct fdry_store *s, const char *name, struct fdry_ref **ret, size_t *count)
{
	struct fdry_buf all = { 0 };
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_ref_select(&t, name, &all);
	fdry_txn_abort(&t);
	if (err) {
		fdry_buf_release(&all);
		return err;
	}
	*ret = (struct fdry_ref *)all.data;
	*count = all.len / sizeof(**ret);
	return 0;
}

int fdry_ref_get(struct fdry_store *s, const char *name, struct fdry_oid *ret)
{
	struct fdry_ref *refs = NULL;
	size_t count;
	int err = fdry_ref_list(s, name, &refs, &count);

	if (!err)
		*ret = refs->oid;
	free(refs);
	return err;
}

int fdry_ref_each(struct fdry_store *s, fdry_ref_fn fn, void *arg)
{
	struct fdry_buf all = { 0 };
	const struct fdry_ref *ref;
	struct fdry_txn t;
	size_t i;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = fdry_ref_images(&t, NULL, &all);
	fdry_txn_abort(&t);
	ref = (const void *)all.data;
	for (i = 0; i < all.len / sizeof(*ref) && !err; i++)
		err = fn(arg, &ref[i]);
	fdry_buf_release(&all);
	return err;
}

struct info_call {
	struct fdry_buf atimes;
	fdry_ref_info_fn fn;
	void *arg;
};

static int info_call(void *arg, const struct fdry_ref *ref)
{
	const struct info_call *c = arg;
	const struct fdry_atime *atime = fdry_atime_find(&c->atimes, &ref->oid);
	char hex[FDRY_OID_HEX_SIZE];

	c->fn(c->arg, &(struct fdry_ref_info){ .sz = sizeof(struct fdry_ref_info),
					       .name = ref->name,
					       .id = fdry_oid_hex(&ref->oid, hex),
					       .used = atime ? atime->time : 0,
					       .pinned = ref->pinned });
	return 0;
}

int fdry_store_refs(struct fdry_store *store, fdry_ref_info_fn fn, void *arg)
{
	struct info_call c = { .fn = fn, .arg = arg };
	int err = fdry_need(store) ?: fdry_need(fn);

	if (err)
		return err;
	err = fdry_store_busy(store);
	if (err)
		return err;
	err = fdry_atime_read(store->env, &c.atimes);
	if (!err)
		err = fdry_ref_each(store, info_call, &c);
	fdry_buf_release(&c.atimes);
	fdry_store_idle(store);
	return err;
}
