// SPDX-License-Identifier: Apache-2.0
/* sections.c - see sections.h. */
#include "lib/sections.h"

#include <inttypes.h>

bool fdry_all_zero(const void *p, size_t len)
{
	const uint8_t *b = p;

	while (len && !*b) {
		b++;
		len--;
	}
	return !len;
}

int fdry_sections_begin(struct fdry_span bytes, size_t header, uint32_t count,
			struct fdry_sections *ret)
{
	uint64_t directory = sizeof(struct fdry_section) * (uint64_t)count;

	if (!fdry_span_at(bytes, header, directory))
		return fdry_fail(FDRY_E_BADIMAGE, "its section directory ends beyond the object");
	*ret = (struct fdry_sections){ .bytes = bytes,
				       .entry = header,
				       .first = header + directory,
				       .at = header + directory };
	return 0;
}

static int section_check(const struct fdry_sections *s, const struct fdry_section *e)
{
	uint64_t pad;
	const uint8_t *p;

	if (e->id <= s->id)
		return fdry_fail(FDRY_E_BADIMAGE, "section %u does not stand in ascending order",
				 e->id);
	if (e->reserved)
		return fdry_fail(FDRY_E_BADIMAGE, "reserved bytes of section %u are not zero",
				 e->id);
	if (e->offset != s->at)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "section %u begins at %" PRIu64 ", not at %" PRIu64, e->id,
				 e->offset, s->at);
	if (!e->length || e->length > s->bytes.len)
		return fdry_fail(FDRY_E_BADIMAGE, "section %u has a length of %" PRIu64, e->id,
				 e->length);
	pad = fdry_section_padded(e->length) - e->length;
	p = fdry_span_at(s->bytes, e->offset, e->length + pad);
	if (!p)
		return fdry_fail(FDRY_E_BADIMAGE, "section %u ends beyond the object", e->id);
	if (!fdry_all_zero(p + e->length, pad))
		return fdry_fail(FDRY_E_BADIMAGE, "padding after section %u is not zero", e->id);
	return 0;
}

int fdry_sections_next(struct fdry_sections *s, uint32_t *id, struct fdry_span *data)
{
	struct fdry_section e;
	int err;

	if (s->entry == s->first) {
		*id = 0;
		if (s->at == s->bytes.len)
			return 0;
		return fdry_fail(FDRY_E_BADIMAGE, "%" PRIu64 " bytes follow its last section",
				 s->bytes.len - s->at);
	}
	memcpy(&e, s->bytes.data + s->entry, sizeof(e));
	err = section_check(s, &e);
	if (err)
		return err;
	s->entry += sizeof(e);
	s->at = e.offset + fdry_section_padded(e.length);
	s->id = e.id;
	*id = e.id;
	*data = (struct fdry_span){ s->bytes.data + e.offset, e.length };
	return 0;
}

int fdry_sections_put(const struct fdry_section_part *parts, size_t n, struct fdry_buf *out,
		      uint32_t *count)
{
	struct fdry_section e = { 0 };
	uint32_t used = 0;
	size_t i;
	int err;

	for (i = 0; i < n; i++)
		used += parts[i].bytes.len != 0;
	e.offset = out->len + sizeof(e) * (uint64_t)used;
	for (i = 0; i < n; i++) {
		e.id = parts[i].id;
		e.length = parts[i].bytes.len;
		if (!e.length)
			continue;
		err = fdry_buf_put(out, &e, sizeof(e));
		if (err)
			return err;
		e.offset += fdry_section_padded(e.length);
	}
	for (i = 0; i < n; i++) {
		err = fdry_buf_put(out, parts[i].bytes.data, parts[i].bytes.len);
		if (err)
			return err;
		err = fdry_buf_align(out, FDRY_SECTION_ALIGN);
		if (err)
			return err;
	}
	*count = used;
	return 0;
}
