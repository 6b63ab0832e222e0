// SPDX-License-Identifier: Apache-2.0
/*
 * pack_fetch.c - importing the images of a list, whose objects the caller brings; see pack.h.
 *
 * As in an import, objects that the store had before stay unchanged until the last transaction: the
 * kinds and links that the list adds to them are kept in memory until then.
 */
#include <stdlib.h>

#include "store/internal.h"
#include "store/pack.h"

struct fdry_fetch {
	struct fdry_writer *writer;
	struct fdry_pack_reader r;
	struct fdry_buf bytes;          /* the list */
	struct fdry_buf objects;        /* struct fdry_fetch_object each */
	struct fdry_buf links;          /* of all objects, one after the other */
	struct fdry_buf at;             /* size_t each: where an object's links begin */
	struct fdry_buf known;          /* struct fdry_item each: new kinds and links */
};

static struct fdry_fetch_object *object_at(const struct fdry_fetch *f, size_t i)
{
	return (struct fdry_fetch_object *)f->objects.data + i;
}

size_t fdry_fetch_objects(const struct fdry_fetch *f, const struct fdry_fetch_object **ret)
{
	*ret = object_at(f, 0);
	return f->objects.len / sizeof(**ret);
}

const struct fdry_oid *fdry_fetch_links(const struct fdry_fetch *f, size_t i)
{
	/* Without a link in the whole list there is no memory to point at. */
	return f->links.len ? (const void *)(f->links.data + ((size_t *)f->at.data)[i]) : NULL;
}

/* The item has links of its own. */
static int item_init(struct fdry_fetch *f, size_t i, struct fdry_item *ret)
{
	const struct fdry_fetch_object *o = object_at(f, i);
	struct fdry_item it = {
		.oid = o->oid, .rec = { .kinds = o->kinds, .size = o->size, .nlinks = o->nlinks }
	};
	int err = o->nlinks ? fdry_buf_put(&it.links, fdry_fetch_links(f, i),
					   (size_t)o->nlinks * FDRY_OID_SIZE) : 0;

	if (err)
		return err;
	it.rec.links = (struct fdry_span){ it.links.data, it.links.len };
	*ret = it;
	return 0;
}

/* --- the list --- */

static int object_read(struct fdry_fetch *f)
{
	size_t at = f->links.len;
	struct fdry_pack_object o;
	struct fdry_fetch_object out;
	int err = fdry_pack_next(&f->r, &o, &f->links);

	if (err)
		return err;
	out = (struct fdry_fetch_object){
		.oid = o.oid, .kinds = o.kinds, .nlinks = o.nlinks, .size = o.size
	};
	return fdry_buf_put(&f->at, &at, sizeof(at))
		       ?: fdry_buf_put(&f->objects, &out, sizeof(out));
}

static int list_read(struct fdry_fetch *f)
{
	struct fdry_oid id;
	uint64_t i;
	int err = fdry_pack_open_list(&f->r, (struct fdry_span){ f->bytes.data, f->bytes.len });

	for (i = 0; !err && i < f->r.objects; i++)
		err = object_read(f);
	return err ?: fdry_pack_end(&f->r, &id);
}

int fdry_fetch_new(struct fdry_span list, struct fdry_fetch **ret)
{
	struct fdry_fetch *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return fdry_nomem();
	err = fdry_buf_put(&f->bytes, list.data, list.len) ?: list_read(f);
	if (err) {
		fdry_fetch_free(f);
		return err;
	}
	*ret = f;
	return 0;
}

/* --- what the store has --- */

static int object_find(struct fdry_fetch *f, size_t i)
{
	struct fdry_fetch_object *o = object_at(f, i);
	bool all = false;
	struct fdry_item it;
	int err = item_init(f, i, &it);

	if (err)
		return err;
	err = fdry_writer_has_item(f->writer, &it, &o->has, &all);
	if (!err && o->has && !all)
		err = fdry_buf_put(&f->known, &it, sizeof(it));
	else
		fdry_item_release(&it);
	return err;
}

int fdry_fetch_begin(struct fdry_fetch *f, struct fdry_store *s)
{
	const struct fdry_fetch_object *o;
	size_t i, n = fdry_fetch_objects(f, &o);
	int err = fdry_store_check_write(s) ?: fdry_writer_begin(s, &f->writer);

	for (i = 0; i < n && !err; i++)
		err = object_find(f, i);
	return err;
}

/* --- objects that arrive --- */

int fdry_fetch_put(struct fdry_fetch *f, size_t i, struct fdry_span bytes)
{
	struct fdry_item it;
	int err = item_init(f, i, &it);

	if (err)
		return err;
	err = fdry_writer_add_item(f->writer, &it, bytes);
	fdry_item_release(&it);
	return err;
}

int fdry_fetch_flush(struct fdry_fetch *f)
{
	return fdry_writer_flush(f->writer);
}

size_t fdry_fetch_pending(const struct fdry_fetch *f)
{
	return fdry_writer_pending(f->writer);
}

/* --- the end --- */

static const char *name_of(const struct fdry_pack_image *image, const struct fdry_fetch_end *end)
{
	return end->ref ? end->ref : end->no_refs ? NULL : image->name;
}

static void images_report(const struct fdry_fetch_end *end, const struct fdry_writer_image *images,
			  size_t n)
{
	char id[FDRY_OID_HEX_SIZE], was[FDRY_OID_HEX_SIZE];
	size_t i;

	for (i = 0; end->image && i < n; i++)
		end->image(end->image_arg, fdry_oid_hex(&images[i].oid, id), images[i].ref,
			   images[i].had ? fdry_oid_hex(&images[i].was, was) : NULL);
}

int fdry_fetch_finish(struct fdry_fetch *f, const struct fdry_fetch_end *end,
		      struct fdry_writer_stats *stats)
{
	struct fdry_writer_image *images = calloc(f->r.nimages, sizeof(*images));
	struct fdry_writer *writer = f->writer;
	size_t i;
	int err;

	if (!images)
		return fdry_nomem();
	for (i = 0; i < f->r.nimages; i++)
		images[i] = (struct fdry_writer_image){ .oid = f->r.images[i].oid,
							.identity = f->r.images[i].identity,
							.ref = name_of(&f->r.images[i], end) };
	f->writer = NULL;
	err = fdry_writer_finish(writer, images, f->r.nimages, (void *)f->known.data,
				 f->known.len / sizeof(struct fdry_item), stats);
	if (!err)
		images_report(end, images, f->r.nimages);
	free(images);
	return err;
}

size_t fdry_fetch_images(const struct fdry_fetch *f, const struct fdry_pack_image **ret)
{
	*ret = f->r.images;
	return f->r.nimages;
}

void fdry_fetch_free(struct fdry_fetch *f)
{
	struct fdry_item *known;
	size_t i;

	if (!f)
		return;
	known = (void *)f->known.data;
	for (i = 0; i < f->known.len / sizeof(*known); i++)
		fdry_item_release(&known[i]);
	fdry_writer_abort(f->writer);
	fdry_pack_reader_release(&f->r);
	fdry_buf_release(&f->known);
	fdry_buf_release(&f->at);
	fdry_buf_release(&f->links);
	fdry_buf_release(&f->objects);
	fdry_buf_release(&f->bytes);
	free(f);
}
