// SPDX-License-Identifier: Apache-2.0
/*
 * pack_plan.c - which images a pack holds, and their objects in its order; see pack.h.
 *
 * One view of the store lists the objects, each after the objects that it links to. A lease keeps
 * all of them from being collected until the plan is released.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "store/lease.h"
#include "store/pack.h"

/* --- images --- */

/* List the images that @name means: all of a ref, or that of an id; NULL: those of all refs. */
static int name_resolve(struct fdry_pack_plan *p, const char *name)
{
	struct fdry_txn t;
	int err = fdry_store_read(p->s, &t);

	if (err)
		return err;
	err = name ? fdry_ref_resolve_all(&t, name, &p->refs) : fdry_ref_images(&t, NULL, &p->refs);
	fdry_txn_abort(&t);
	return err;
}

static int names_resolve(struct fdry_pack_plan *p, const char *const *names, size_t count)
{
	size_t i;
	int err = 0;

	if (p->flags & FDRY_EXPORT_ALL) {
		if (count)
			return fdry_fail(FDRY_E_INVAL, "an export of all images takes no names");
		err = name_resolve(p, NULL);
		if (err || p->refs.len)
			return err;
		return fdry_fail(FDRY_E_NOENT,
				 "the store %s has no refs; seal an image there first", p->s->path);
	}
	if (!count)
		return fdry_fail(FDRY_E_INVAL, "there is no image to export; name one");
	err = fdry_need(names);
	for (i = 0; i < count && !err; i++)
		err = fdry_need(names[i]) ?: name_resolve(p, names[i]);
	return err;
}

static int image_cmp(const void *a, const void *b)
{
	return fdry_pack_image_cmp(a, b);
}

static int images_choose(struct fdry_pack_plan *p, const char *const *names, size_t count)
{
	const struct fdry_ref *ref;
	size_t i, n;
	int err = names_resolve(p, names, count);

	if (err)
		return err;
	ref = (const void *)p->refs.data;
	n = p->refs.len / sizeof(*ref);
	if (n > FDRY_PACK_IMAGES_MAX)
		return fdry_fail(FDRY_E_LIMIT, "a pack holds %u images at most, not %zu",
				 FDRY_PACK_IMAGES_MAX, n);
	p->images = calloc(n, sizeof(*p->images));
	if (!p->images)
		return fdry_nomem();
	for (i = 0; i < n; i++) {
		p->images[i].oid = ref[i].oid;
		if (!ref[i].name[0] || p->flags & FDRY_EXPORT_NO_REFS)
			continue;
		p->images[i].name = ref[i].name;
		p->images[i].identity = ref[i].identity;
	}
	qsort(p->images, n, sizeof(*p->images), image_cmp);
	for (i = 0; i < n; i++)
		if (!i || image_cmp(&p->images[i], &p->images[p->nimages - 1]))
			p->images[p->nimages++] = p->images[i];
	return 0;
}

/* --- their objects --- */

struct frame {
	struct fdry_oid oid;
	struct fdry_record rec;
	uint32_t next; /* link to follow */
};

struct walk {
	struct fdry_pack_plan *p;
	struct fdry_txn t;
	struct fdry_idset seen;
	struct fdry_buf stack;
};

static int walk_push(struct walk *w, const struct fdry_oid *oid)
{
	struct frame f = { .oid = *oid };
	bool is_new = false;
	int err = fdry_idset_add(&w->seen, oid, &is_new);

	if (err || !is_new)
		return err;
	err = fdry_record_need(&w->t, oid, &f.rec);
	return err ? err : fdry_buf_put(&w->stack, &f, sizeof(f));
}

/* One step: follow the next link of the object on top, or list the object once all its links are
 * done. */
static int walk_step(struct walk *w)
{
	struct frame *f = (void *)(w->stack.data + w->stack.len - sizeof(*f));
	struct fdry_pack_entry e = {
		.oid = f->oid, .kinds = f->rec.kinds, .nlinks = f->rec.nlinks, .size = f->rec.size
	};
	struct fdry_oid link;

	if (f->next < f->rec.nlinks) {
		link = fdry_record_link(&f->rec, f->next++);
		return walk_push(w, &link);
	}
	w->stack.len -= sizeof(*f);
	w->p->bytes += e.size;
	return fdry_buf_put(&w->p->entries, &e, sizeof(e));
}

static int walk_image(struct walk *w, const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];
	struct fdry_record rec;
	int err = fdry_record_need(&w->t, oid, &rec);

	if (err)
		return err;
	if (!(rec.kinds & 1u << FDRY_OBJECT_MANIFEST))
		return fdry_fail(FDRY_E_INVAL,
				 "object %s is not an image; only images can be exported",
				 fdry_oid_hex(oid, hex));
	err = walk_push(w, oid);
	while (!err && w->stack.len)
		err = walk_step(w);
	return err;
}

static int objects_list(struct fdry_pack_plan *p)
{
	struct walk w = { .p = p };
	size_t i;
	int err = fdry_txn_read(p->s->env->db, &w.t);

	if (err)
		return err;
	for (i = 0; i < p->nimages && !err; i++)
		err = walk_image(&w, &p->images[i].oid);
	fdry_txn_abort(&w.t);
	fdry_buf_release(&w.stack);
	fdry_idset_release(&w.seen);
	return err;
}

/* While a collection is under way, only a look under the writers' lock is certain. */
static int images_there(struct fdry_pack_plan *p)
{
	struct fdry_record rec;
	struct fdry_txn t;
	size_t i;
	int err = fdry_txn_write(p->s->env->db, 0, &t);

	if (err)
		return err;
	for (i = 0; i < p->nimages && !err; i++)
		err = fdry_record_need(&t, &p->images[i].oid, &rec);
	fdry_txn_abort(&t);
	return err;
}

/* Keep the images, and all that they reach, from being collected as long as the lease lasts. */
static int images_hold(struct fdry_pack_plan *p)
{
	bool announced = false;
	struct fdry_txn t;
	size_t i;
	int err = 0;

	for (i = 0; i < p->nimages && !err; i++)
		err = fdry_lease_note(p->lease, &p->images[i].oid, 1);
	if (err)
		return err;
	err = fdry_txn_read_latest(p->s->env->db, &t);
	if (err)
		return err;
	err = fdry_gc_announced(&t, &announced);
	fdry_txn_abort(&t);
	return err || !announced || p->s->env->readonly ? err : images_there(p);
}

/* --- the plan --- */

int fdry_pack_plan_init(struct fdry_pack_plan *p, const char *const *names, size_t count)
{
	int err = images_choose(p, names, count) ?: fdry_lease_begin(p->s->env, &p->lease);

	return err ?: images_hold(p) ?: objects_list(p);
}

void fdry_pack_plan_release(struct fdry_pack_plan *p)
{
	fdry_lease_end(p->lease, false);
	fdry_buf_release(&p->entries);
	fdry_buf_release(&p->refs);
	free(p->images);
}

int fdry_pack_plan_read(struct fdry_pack_plan *p, size_t i, struct fdry_buf *ret)
{
	const struct fdry_pack_entry *e = (const void *)p->entries.data;
	struct fdry_unpacker u = { 0 };
	struct fdry_txn t;
	int err = fdry_txn_read(p->s->env->db, &t);

	if (err)
		return err;
	err = fdry_object_read(&t, &e[i].oid, &u, ret);
	fdry_txn_abort(&t);
	fdry_unpacker_release(&u);
	return err;
}

/* --- heads --- */

static int head_put(const struct fdry_pack_plan *p, struct fdry_buf *ret)
{
	uint8_t head[FDRY_PACK_HEAD] = { 0 };

	memcpy(head, FDRY_PACK_MAGIC, FDRY_PACK_MAGIC_SIZE);
	fdry_set32(head + FDRY_PACK_AT_VERSION, FDRY_PACK_VERSION);
	fdry_set32(head + FDRY_PACK_AT_IMAGES, (uint32_t)p->nimages);
	fdry_set64(head + FDRY_PACK_AT_OBJECTS, fdry_pack_plan_count(p));
	fdry_set64(head + FDRY_PACK_AT_BYTES, p->bytes);
	return fdry_buf_put(ret, head, sizeof(head));
}

static int image_put(const struct fdry_pack_image *image, struct fdry_buf *ret)
{
	uint8_t rec[FDRY_PACK_IMAGE_HEAD + FDRY_REF_NAME_MAX] = { 0 };
	size_t len = image->name ? strlen(image->name) : 0;

	memcpy(rec, image->oid.b, FDRY_OID_SIZE);
	memcpy(rec + FDRY_PACK_IMAGE_AT_IDENTITY, image->identity.b, FDRY_OID_SIZE);
	fdry_set16(rec + FDRY_PACK_IMAGE_AT_LEN, (uint16_t)len);
	if (len)
		memcpy(rec + FDRY_PACK_IMAGE_HEAD, image->name, len);
	return fdry_buf_put(ret, rec, FDRY_PACK_IMAGE_HEAD + len);
}

int fdry_pack_put_images(const struct fdry_pack_plan *p, struct fdry_buf *ret)
{
	size_t i;
	int err = head_put(p, ret);

	for (i = 0; i < p->nimages && !err; i++)
		err = image_put(&p->images[i], ret);
	return err;
}

static int changed(const struct fdry_oid *oid)
{
	char hex[FDRY_OID_HEX_SIZE];

	return fdry_fail(FDRY_E_RACED,
			 "object %s got another kind or link while it was exported; export again",
			 fdry_oid_hex(oid, hex));
}

int fdry_pack_put_head(struct fdry_txn *t, const struct fdry_pack_entry *e, struct fdry_buf *ret)
{
	struct fdry_record rec;
	uint8_t *head = NULL;
	void *p = NULL;
	int err = fdry_record_need(t, &e->oid, &rec);

	if (err)
		return err;
	if (rec.kinds != e->kinds || rec.nlinks != e->nlinks || rec.size != e->size)
		return changed(&e->oid);
	err = fdry_buf_grow(ret, FDRY_PACK_OBJECT_HEAD, &p);
	if (err)
		return err;
	head = p;
	memcpy(head, e->oid.b, FDRY_OID_SIZE);
	fdry_set16(head + FDRY_PACK_OBJECT_AT_KINDS, (uint16_t)e->kinds);
	fdry_set32(head + FDRY_PACK_OBJECT_AT_LINKS, e->nlinks);
	fdry_set64(head + FDRY_PACK_OBJECT_AT_SIZE, e->size);
	return fdry_buf_put(ret, rec.links.data, rec.links.len);
}

int fdry_pack_put_list(const struct fdry_pack_plan *p, struct fdry_buf *ret)
{
	const struct fdry_pack_entry *e = (const void *)p->entries.data;
	size_t i, n = fdry_pack_plan_count(p);
	struct fdry_txn t;
	int err = fdry_pack_put_images(p, ret) ?: fdry_txn_read(p->s->env->db, &t);

	if (err)
		return err;
	for (i = 0; i < n && !err; i++)
		err = fdry_pack_put_head(&t, &e[i], ret);
	fdry_txn_abort(&t);
	return err;
}
