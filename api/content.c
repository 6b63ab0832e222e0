// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - content from the store to the device.
 *
 * Memory of a region is zero when it is mapped, so what no chunk covers is only written
 * when content is restored later.
 */
#include "api/image.h"
#include "api/upload.h"

static int chunk_get(const struct fdry_image *img, struct fdry_get *get, const struct fdry_mf_chunk *c,
		     bool *hashed, struct fdry_span *ret)
{
	int err = fdry_get_map(get, &c->oid, ret);

	if (!err && ret->len != c->size)
		err = fdry_fail(FDRY_E_BADIMAGE, "it has %zu bytes, the manifest says %llu; seal the image anew",
				ret->len, (unsigned long long)c->size);
	if (!err)
		err = fdry_get_verify(get, &c->oid, *ret, img->verify, hashed);
	return err ? fdry_fail_at(err, "content at %#llx", (unsigned long long)c->addr) : 0;
}

static int chunks_upload(struct fdry_image *img, struct fdry_get *get, struct fdry_upload *up,
			 struct fdry_content *c)
{
	struct fdry_span bytes;
	bool hashed = false;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_chunks && !err; i++) {
		err = chunk_get(img, get, &img->m.chunks[i], &hashed, &bytes);
		if (!err)
			err = fdry_upload_add(up, img->m.chunks[i].addr, bytes);
		c->bytes += img->m.chunks[i].size;
		c->hashed += hashed ? img->m.chunks[i].size : 0;
	}
	return err ? err : fdry_upload_finish(up);
}

static int content_zero(struct fdry_image *img)
{
	const struct fdry_mf_segment *s = img->m.segments;
	uint32_t i;
	int err = 0;

	for (i = 0; i < img->m.n_segments && !err; i++)
		if (s[i].role == FDRY_ROLE_CONTENT)
			err = fdry_call(img->drv, cuMemsetD8Async, s[i].addr, 0, s[i].size, img->stream);
	return err;
}

int fdry_image_content(struct fdry_image *img, struct fdry_get *get, struct fdry_content *c)
{
	struct fdry_upload *up;
	int err;

	err = fdry_upload_new(img->drv, img->device, img->stream, &up);
	if (err)
		return err;
	if (c->zero)
		err = content_zero(img);
	if (!err)
		err = chunks_upload(img, get, up, c);
	fdry_upload_free(up);
	return err;
}
