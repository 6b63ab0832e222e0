// SPDX-License-Identifier: Apache-2.0
/*
 * content.c - content from the store to the device.
 *
 * Memory of a region is zero when it is mapped, so what no chunk covers is only written
 * when content is restored later.
 */
#include "api/image.h"
#include "api/upload.h"

static int chunk_add(struct fdry_image *img, struct fdry_get *get, struct fdry_upload *up, const struct fdry_mf_chunk *c, bool verify)
{
	struct fdry_span bytes;
	int err;

	err = fdry_get_map(get, &c->oid, &bytes);
	if (!err && bytes.len != c->size)
		err = fdry_fail(FDRY_E_BADIMAGE, "the chunk at %#llx has %zu bytes, the manifest says %llu; seal the image anew",
				(unsigned long long)c->addr, bytes.len, (unsigned long long)c->size);
	if (!err)
		err = fdry_get_verify(get, &c->oid, bytes, verify);
	if (err)
		return err;
	img->report.content_bytes += bytes.len;
	return fdry_upload_add(up, c->addr, bytes);
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

int fdry_image_content(struct fdry_image *img, struct fdry_get *get, bool verify, bool zero)
{
	struct fdry_upload *up;
	uint32_t i;
	int err;

	err = fdry_upload_new(img->drv, img->device, img->stream, &up);
	if (err)
		return err;
	if (zero)
		err = content_zero(img);
	for (i = 0; i < img->m.n_chunks && !err; i++)
		err = chunk_add(img, get, up, &img->m.chunks[i], verify);
	if (!err)
		err = fdry_upload_finish(up);
	fdry_upload_free(up);
	return err;
}
