// SPDX-License-Identifier: Apache-2.0
/*
 * manifest_write.c - writes the bytes of a manifest.
 *
 * Sections are written in the order of their ids, each at the next multiple of 8. Sections without
 * entries are left out. So equal sections give equal bytes.
 */
#include "image/manifest.h"

#include <stdlib.h>
#include <string.h>

int fdry_manifest_add_str(struct fdry_manifest_writer *w, const char *s, uint32_t *ret)
{
	size_t off, len = strlen(s) + 1;
	int err;

	if (!w->strings.len) {
		err = fdry_buf_put(&w->strings, "", 1);
		if (err)
			return err;
	}
	for (off = 0; off < w->strings.len; off += strlen((char *)w->strings.data + off) + 1)
		if (!strcmp((char *)w->strings.data + off, s))
			goto out;
	if (off + len > UINT32_MAX)
		return fdry_fail(
			FDRY_E_LIMIT,
			"an image's names take more than 4 GiB; use fewer or shorter ones");
	err = fdry_buf_put(&w->strings, s, len);
	if (err)
		return err;
out:
	*ret = (uint32_t)off;
	return 0;
}

int fdry_manifest_add_fact(struct fdry_manifest_writer *w, const char *key, const char *value)
{
	struct fdry_mf_fact mf;
	int err = fdry_manifest_add_str(w, key, &mf.key) ?:
		  fdry_manifest_add_str(w, value, &mf.value);

	return err ? err : fdry_buf_put(&w->facts, &mf, sizeof(mf));
}

int fdry_manifest_encode(struct fdry_manifest_writer *w, struct fdry_buf *ret)
{
	const struct fdry_section_part parts[] = {
#define X(id, NAME, member, type) { id, { w->member.data, w->member.len } },
		FDRY_MF_SECTIONS(X)
#undef X
	};
	struct fdry_mf_header h = { .magic = FDRY_MF_MAGIC, .version = FDRY_MF_VERSION,
				    .base = w->base, .end = w->end };
	const size_t n = sizeof(parts) / sizeof(parts[0]);
	struct fdry_buf out = { 0 };
	struct fdry_manifest m;
	int err;

	err = fdry_buf_put(&out, &h, sizeof(h)) ?: fdry_sections_put(parts, n, &out, &h.sections);
	if (err)
		goto out_release;
	h.size = out.len;
	memcpy(out.data, &h, sizeof(h));
	/* A manifest that the reader refuses must never be stored. */
	err = fdry_manifest_init((struct fdry_span){ out.data, out.len }, &m);
	if (err) {
		err = fdry_fail_at(err, "the new manifest is not valid");
		goto out_release;
	}
	*ret = out;
	return 0;
out_release:
	fdry_buf_release(&out);
	return err;
}

void fdry_manifest_writer_release(struct fdry_manifest_writer *w)
{
#define X(id, NAME, member, type) fdry_buf_release(&w->member);
	FDRY_MF_SECTIONS(X)
#undef X
}
