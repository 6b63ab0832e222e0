// SPDX-License-Identifier: Apache-2.0
/*
 * names.c - gives images names. The store holds the names, but only a manifest states what its
 * image was made for.
 */
#include <stdlib.h>
#include <string.h>

#include "foundry.h"
#include "lib/opts.h"
#include "image/select.h"

static int image_check(struct fdry_store *s, const struct fdry_oid *id)
{
	struct fdry_object_info info;
	int err = fdry_store_info(s, id, &info);

	if (err)
		return err;
	if (info.kind != FDRY_OBJECT_MANIFEST)
		return fdry_fail(FDRY_E_INVAL, "it is not an image; only images can be named");
	return 0;
}

static int identity_read(struct fdry_reader *reader, const struct fdry_oid *id,
			 struct fdry_oid *ret)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	int err = fdry_reader_copy(reader, id, &bytes);

	if (err)
		goto out_release;
	err = fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (err)
		goto out_release;
	err = fdry_identity_digest(&m, ret);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

/* List the images that @image names, each with its identity. The oldest comes first, so the order
 * stays when they are named one by one. */
static int images_read(struct fdry_store *s, const char *image, struct fdry_ref **ret,
		       size_t *count)
{
	struct fdry_ref *refs = NULL, swap;
	struct fdry_reader *reader;
	size_t i, n = 0;
	int err = fdry_reader_begin(s, &reader);

	if (err)
		return err;
	err = fdry_reader_images(reader, image, &refs, &n);
	if (err)
		goto out_free;
	for (i = 0; i < n; i++) {
		err = image_check(s, &refs[i].oid);
		if (err)
			goto out_free;
		err = identity_read(reader, &refs[i].oid, &refs[i].identity);
		if (err)
			goto out_free;
	}
	fdry_reader_end(reader);
	for (i = 0; i < n / 2; i++) {
		swap = refs[i];
		refs[i] = refs[n - 1 - i];
		refs[n - 1 - i] = swap;
	}
	*ret = refs;
	*count = n;
	return 0;
out_free:
	free(refs);
	fdry_reader_end(reader);
	return fdry_fail_at(err, "image '%.100s'", image);
}

int fdry_image_tag(struct fdry_store *store, const char *image, const char *ref)
{
	struct fdry_ref *refs = NULL;
	size_t i, n = 0;
	int err = fdry_need(store) ?: fdry_need(image) ?: fdry_need(ref);

	if (err)
		return err;
	err = fdry_ref_check(ref);
	if (err)
		return err;
	err = images_read(store, image, &refs, &n);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		err = fdry_ref_set(store, ref, &refs[i].oid, &refs[i].identity);
		if (err)
			goto out_free;
	}
out_free:
	free(refs);
	return err;
}
