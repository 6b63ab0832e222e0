// SPDX-License-Identifier: Apache-2.0
/* graph_objects.c - see graph_objects.h. */
#include "tests/lib/graph_objects.h"

struct fdry_span span_of(const struct fdry_buf *b)
{
	return (struct fdry_span){ b->data, b->len };
}

struct fdry_buf golden_file(const char *name, const char *suffix)
{
	struct fdry_buf b = { 0 };
	char path[256], block[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), GOLDEN "%s%s", name, suffix);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "cannot open %s", path);
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		ck_assert_int_eq(fdry_buf_put(&b, block, n), 0);
	fclose(f);
	return b;
}

struct fdry_buf object_of(struct fdry_span text)
{
	struct fdry_buf b = { 0 };
	int err = fdry_graph_from_text(text, &b);

	ck_assert_msg(!err, "%s", fdry_last_error());
	return b;
}

struct fdry_buf golden_object(const char *name)
{
	struct fdry_buf text = golden_file(name, ".txt"), b = object_of(span_of(&text));

	fdry_buf_release(&text);
	return b;
}

struct fdry_buf object_of_string(const char *text)
{
	return object_of((struct fdry_span){ (const uint8_t *)text, strlen(text) });
}

struct fdry_buf text_of(const struct fdry_buf *object)
{
	struct fdry_graph_view v;
	struct fdry_buf text = { 0 };

	ck_assert_msg(!fdry_graph_view_init(span_of(object), &v), "%s", fdry_last_error());
	ck_assert_msg(!fdry_graph_to_text(&v, NULL, 0, &text), "%s", fdry_last_error());
	return text;
}

size_t entry_of(const struct fdry_buf *object, uint32_t id)
{
	size_t at = sizeof(struct fdry_graph_header);
	uint32_t i, n = fdry_get32(object->data + offsetof(struct fdry_graph_header, sections));

	for (i = 0; i < n; i++, at += sizeof(struct fdry_section))
		if (fdry_get32(object->data + at) == id)
			return at;
	ck_abort_msg("no section %u", id);
	return 0;
}

size_t section_of(const struct fdry_buf *object, uint32_t id)
{
	return fdry_get64(object->data + entry_of(object, id) +
			  offsetof(struct fdry_section, offset));
}
