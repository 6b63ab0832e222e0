// SPDX-License-Identifier: Apache-2.0
/*
 * manifest_read.c - makes a checked view of a manifest's bytes.
 *
 * The directory is checked first: every section lies inside the bytes, in order and without
 * overlap, with zeros between sections. manifest_check.c then checks the entries.
 */
#include <string.h>

#include "image/manifest.h"
#include "mm/region.h"
#include "image/manifest_check.h"

static int header_check(struct fdry_span bytes, const struct fdry_mf_header *h)
{
	if (memcmp(h->magic, FDRY_MF_MAGIC, sizeof(h->magic)))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "the object is not an image manifest; give the name of an image");
	if (h->version != FDRY_MF_VERSION || h->incompat & ~FDRY_MF_INCOMPAT_KNOWN)
		return fdry_fail(FDRY_E_VERSION,
				 "the manifest has format version %u and features %#x, but this "
				 "library knows version %u; use a newer library",
				 h->version, h->incompat, FDRY_MF_VERSION);
	if (h->size != bytes.len || h->size & 7)
		return fdry_manifest_bad("its header says %llu bytes, and it has %zu",
					 (unsigned long long)h->size, bytes.len);
	if (!fdry_all_zero(h->reserved, sizeof(h->reserved)))
		return fdry_manifest_bad("a reserved field is set");
	if (h->sections > FDRY_MF_SECTIONS_MAX)
		return fdry_manifest_bad("it has %u sections", h->sections);
	if (h->base > h->end)
		return fdry_manifest_bad("its region ends before it begins");
	if (h->end > FDRY_HOST_PLACE) /* device addresses are below this, so sums of two do not
					 overflow */
		return fdry_manifest_bad("its region ends beyond the address space");
	if (h->base % FDRY_ALLOC_BLOCK)
		return fdry_manifest_bad("its region does not begin at a multiple of %u",
					 FDRY_ALLOC_BLOCK);
	return 0;
}

static int section_take(struct fdry_manifest *m, uint32_t id, struct fdry_span data)
{
	switch (id) {
#define X(nr, NAME, member, type) \
	case nr: \
		if (data.len % sizeof(type)) \
			return fdry_manifest_bad("section " #member " has a partial entry"); \
		m->member = (const void *)data.data; \
		m->n_##member = (uint32_t)(data.len / sizeof(type)); \
		return 0;
	FDRY_MF_SECTIONS(X)
#undef X
	default:
		m->has_unknown = true;
		if (id & FDRY_SECTION_OPTIONAL)
			return 0;
		return fdry_fail(FDRY_E_VERSION,
				 "the manifest has section %u, which this library does not know; "
				 "use a newer library",
				 id);
	}
}

static int directory_check(struct fdry_span bytes, struct fdry_manifest *m)
{
	struct fdry_sections s;
	struct fdry_span data;
	uint32_t id;
	int err = fdry_sections_begin(bytes, sizeof(*m->header), m->header->sections, &s);

	if (err)
		return err;
	for (;;) {
		err = fdry_sections_next(&s, &id, &data);
		if (err)
			return fdry_fail_at(err, "damaged manifest");
		if (!id)
			return 0;
		err = section_take(m, id, data);
		if (err)
			return err;
	}
}

int fdry_manifest_init(struct fdry_span bytes, struct fdry_manifest *ret)
{
	struct fdry_manifest m = { 0 };
	int err;

	if ((uintptr_t)bytes.data & 7)
		return fdry_bug("a manifest's bytes are not aligned");
	if (bytes.len > FDRY_MF_SIZE_MAX)
		return fdry_fail(FDRY_E_LIMIT, "a manifest of %zu bytes is too large", bytes.len);
	m.header = fdry_span_at(bytes, 0, sizeof(*m.header));
	if (!m.header)
		return fdry_manifest_bad("%zu bytes are too few", bytes.len);
	err = header_check(bytes, m.header);
	if (err)
		return err;
	m.has_unknown = m.header->compat != 0;
	err = directory_check(bytes, &m);
	if (err)
		return err;
	err = fdry_manifest_check(&m);
	if (err)
		return err;
	*ret = m;
	return 0;
}
