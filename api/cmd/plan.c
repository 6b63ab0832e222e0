// SPDX-License-Identifier: Apache-2.0
/* plan.c - computes what storing would change; see plan.h. */
#include "api/cmd/plan.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "lib/err.h"

/* An object that the store would contain by then. */
struct brought {
	struct fdry_oid oid; /* comes first, for fdry_oid_cmp() */
	uint32_t kinds;
};

static struct brought *brought_find(const struct plan *p, const struct fdry_oid *oid)
{
	struct brought **found = tfind(oid, &p->brought, fdry_oid_cmp);

	return found ? *found : NULL;
}

static int brought_add(struct plan *p, const struct plan_object *o)
{
	struct brought *b = malloc(sizeof(*b));

	if (b)
		*b = (struct brought){ .oid = o->oid, .kinds = o->kinds };
	if (b && tsearch(b, &p->brought, fdry_oid_cmp))
		return 0;
	free(b);
	return fdry_nomem();
}

/* --- objects in the store --- */

static int stored_info(struct plan *p, const struct fdry_oid *oid, bool *found,
		       struct fdry_object_info *ret)
{
	int err = p->s ? fdry_store_info(p->s, oid, ret) : -FDRY_E_NOENT;

	*found = !err;
	return err == -FDRY_E_NOENT ? 0 : err;
}

static bool has_link(const struct fdry_oid *all, size_t n, const struct fdry_oid *link)
{
	return n && bsearch(link, all, n, sizeof(*all), fdry_oid_cmp);
}

static int links_stored(struct plan *p, const struct plan_object *o, bool *ret)
{
	struct fdry_oid *links = NULL;
	size_t i, n = 0;
	int err = fdry_store_links(p->s, &o->oid, &links, &n);

	if (err)
		return err;
	for (i = 0; i < o->nlinks && has_link(links, n, &o->links[i]); i++)
		;
	*ret = i == o->nlinks;
	free(links);
	return 0;
}

/* Storing the same object again repairs a damaged one. */
static int bytes_stored(struct plan *p, const struct fdry_oid *oid, bool *ret)
{
	struct fdry_buf bytes = { 0 };
	int err = fdry_reader_copy(p->reader, oid, &bytes);

	fdry_buf_release(&bytes);
	*ret = !err;
	return err == -FDRY_E_CORRUPT ? 0 : err;
}

static int object_stored(struct plan *p, const struct plan_object *o, bool *ret)
{
	struct fdry_object_info info;
	int err = stored_info(p, &o->oid, ret, &info);

	if (err)
		return err;
	if (*ret)
		*ret = !(o->kinds & ~info.kinds);
	if (*ret)
		err = links_stored(p, o, ret);
	if (err)
		return err;
	if (*ret)
		return bytes_stored(p, &o->oid, ret);
	return 0;
}

/* --- objects --- */

static int link_check(struct plan *p, const struct fdry_oid *link)
{
	struct fdry_object_info info;
	char hex[FDRY_OID_HEX_SIZE];
	bool found = false;
	int err = brought_find(p, link) ? 0 : stored_info(p, link, &found, &info);

	if (err || found || brought_find(p, link))
		return err;
	return fdry_fail(
		FDRY_E_NOENT,
		"a link names object %s, which is neither in the store nor before this one",
		fdry_oid_hex(link, hex));
}

int plan_object(struct plan *p, const struct plan_object *o, bool *fresh)
{
	struct brought *b = brought_find(p, &o->oid);
	bool stored = false;
	size_t i;
	int err = 0;

	for (i = 0; i < o->nlinks && !err; i++)
		err = link_check(p, &o->links[i]);
	if (err)
		return err;
	if (!b)
		err = object_stored(p, o, &stored);
	if (err)
		return err;
	if (!b && !stored)
		err = brought_add(p, o);
	if (err)
		return err;
	if (b)
		b->kinds |= o->kinds;
	*fresh = !b && !stored; /* an object that comes twice is reported once */
	return 0;
}

/* --- refs --- */

static int image_check(struct plan *p, const struct fdry_oid *oid)
{
	const struct brought *b = brought_find(p, oid);
	struct fdry_object_info info = { 0 };
	char hex[FDRY_OID_HEX_SIZE];
	bool found = false;
	int err = stored_info(p, oid, &found, &info);

	if (err)
		return err;
	if (!found && !b)
		return fdry_fail(FDRY_E_NOENT,
				 "object %s is neither in the store nor before this ref",
				 fdry_oid_hex(oid, hex));
	if (!((info.kinds | (b ? b->kinds : 0)) & 1u << FDRY_OBJECT_MANIFEST))
		return fdry_fail(FDRY_E_INVAL,
				 "object %s is not an image; only images can have names",
				 fdry_oid_hex(oid, hex));
	return 0;
}

static int name_look(struct plan *p, const struct fdry_ref *ref, bool *had, struct fdry_oid *was)
{
	struct fdry_ref *refs = NULL;
	size_t i, count = 0;
	int err = p->s ? fdry_ref_list(p->s, ref->name, &refs, &count) : 0;

	*had = false;
	if (err)
		return err == -FDRY_E_NOENT ? 0 : err; /* the name is new */
	for (i = 0; i < count; i++) {
		if (!fdry_oid_eq(&refs[i].identity, &ref->identity) ||
		    fdry_oid_eq(&refs[i].oid, &ref->oid))
			continue;
		*had = true;
		*was = refs[i].oid;
	}
	free(refs);
	return 0;
}

int plan_ref(struct plan *p, const struct fdry_ref *ref, bool *had, struct fdry_oid *was)
{
	int err = image_check(p, &ref->oid);

	return err ? err : name_look(p, ref, had, was);
}

void plan_release(struct plan *p)
{
	tdestroy(p->brought, free);
	p->brought = NULL;
}
