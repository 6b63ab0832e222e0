// SPDX-License-Identifier: Apache-2.0
/* pack_choose.c - from what a person names to the images of a pack, with names and identities; see
 * pack.h. */
#include "store/internal.h"
#include "store/pack.h"

int fdry_pack_choose(struct fdry_store *s, const char *name, bool named, struct fdry_pack_choice *c)
{
	size_t i = c->refs.len / sizeof(struct fdry_ref);
	struct fdry_ref *refs;
	struct fdry_txn t;
	int err = fdry_store_read(s, &t);

	if (err)
		return err;
	err = name ? fdry_ref_resolve_all(&t, name, &c->refs) : fdry_ref_images(&t, NULL, &c->refs);
	fdry_txn_abort(&t);
	if (!err && c->refs.len / sizeof(*refs) == i)
		err = fdry_fail(FDRY_E_NOENT, "the store %s has no refs; seal an image there first",
				s->path);
	refs = (void *)c->refs.data;
	for (; !err && !named && i < c->refs.len / sizeof(*refs); i++)
		refs[i].name[0] = '\0';
	return err;
}

int fdry_pack_chosen(struct fdry_pack_choice *c, const struct fdry_pack_image **ret, size_t *count)
{
	const struct fdry_ref *refs = (const void *)c->refs.data;
	size_t i, n = c->refs.len / sizeof(*refs);
	struct fdry_pack_image image;
	int err = 0;

	c->images.len = 0;
	for (i = 0; i < n && !err; i++) {
		image = (struct fdry_pack_image){ .oid = refs[i].oid, .identity = refs[i].identity,
						  .name = refs[i].name[0] ? refs[i].name : NULL };
		err = fdry_buf_put(&c->images, &image, sizeof(image));
	}
	if (err)
		return err;
	*ret = (const void *)c->images.data;
	*count = n;
	return 0;
}

void fdry_pack_choice_release(struct fdry_pack_choice *c)
{
	fdry_buf_release(&c->refs);
	fdry_buf_release(&c->images);
}
