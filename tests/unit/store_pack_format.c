// SPDX-License-Identifier: Apache-2.0
/* Unit tests of the format of packs: each rule is broken alone, in a pack whose id is still
 * right. */
#include "tests/lib/pack_stores.h"

/* Return the offset of object number @n. */
static size_t object_at(const struct mem *m, unsigned int n)
{
	const uint8_t *d = m->b.data;
	size_t at = FDRY_PACK_HEAD;
	unsigned int i;

	for (i = 0; i < fdry_get32(d + FDRY_PACK_AT_IMAGES); i++)
		at += FDRY_PACK_IMAGE_HEAD + fdry_get16(d + at + FDRY_PACK_IMAGE_AT_LEN);
	for (i = 0; i < n; i++)
		at += FDRY_PACK_OBJECT_HEAD +
		      fdry_get32(d + at + FDRY_PACK_OBJECT_AT_LINKS) * FDRY_OID_SIZE +
		      fdry_get64(d + at + FDRY_PACK_OBJECT_AT_BODY);
	return at;
}

/* Write the correct id into a changed pack, and @objects as the counts of its header. */
static void reseal(struct mem *m, unsigned int objects)
{
	struct fdry_hash h = { 0 };
	struct fdry_oid id;
	unsigned int i;
	size_t at;

	ok(fdry_hash_update(&h, m->b.data, object_at(m, 0)));
	for (i = 0; i < objects; i++) {
		uint8_t head[FDRY_PACK_OBJECT_HEAD];

		at = object_at(m, i);
		memcpy(head, m->b.data + at, sizeof(head));
		head[FDRY_PACK_OBJECT_AT_CODEC] = 0;
		fdry_set64(head + FDRY_PACK_OBJECT_AT_BODY, 0);
		ok(fdry_hash_update(&h, head, sizeof(head)));
		ok(fdry_hash_update(&h, m->b.data + at + sizeof(head),
				    fdry_get32(head + FDRY_PACK_OBJECT_AT_LINKS) * FDRY_OID_SIZE));
	}
	ok(fdry_hash_final(&h, &id));
	memcpy(m->b.data + object_at(m, objects) + FDRY_PACK_END_AT_ID, &id, sizeof(id));
}

/* A change of a one-byte field, and the message; the id is correct, so it does not reveal the
 * change. */
#define HEAD(field) 0, field
#define IMAGE(field) 1, field
#define OBJECT(field) 2, field
#define END(field) 3, field
static const struct {
	int part;
	size_t field;
	int value;
	int err;
	const char *text;
} rules[] = {
	{ HEAD(FDRY_PACK_AT_VERSION + 4), 1, FDRY_E_BADIMAGE, "reserved bytes" },
	{ HEAD(FDRY_PACK_AT_IMAGES), 0, FDRY_E_BADIMAGE, "counts of its head" },
	{ HEAD(FDRY_PACK_AT_IMAGES + 2), 2, FDRY_E_BADIMAGE, "counts of its head" },
	{ HEAD(FDRY_PACK_AT_OBJECTS + 7), 0xff, FDRY_E_BADIMAGE, "counts of its head" },
	{ HEAD(FDRY_PACK_AT_BYTES + 1), 0, FDRY_E_BADIMAGE, "more than its head says" },
	{ HEAD(FDRY_PACK_AT_BYTES + 1), 0xff, FDRY_E_BADIMAGE, "less than its head says" },
	{ HEAD(FDRY_PACK_AT_ZERO), 1, FDRY_E_BADIMAGE, "reserved bytes" },
	{ IMAGE(0), 0, FDRY_E_NOENT, "no object" },
	{ IMAGE(FDRY_PACK_IMAGE_AT_LEN + 1), 1, FDRY_E_BADIMAGE, "head of an image" },
	{ IMAGE(FDRY_PACK_IMAGE_AT_ZERO), 1, FDRY_E_BADIMAGE, "head of an image" },
	{ IMAGE(FDRY_PACK_IMAGE_HEAD), '/', FDRY_E_NAME, "not a ref's name" },
	{ IMAGE(FDRY_PACK_IMAGE_HEAD), 0, FDRY_E_BADIMAGE, "zero byte" },
	{ OBJECT(0), 0, FDRY_E_CORRUPT, "does not match its id" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_KINDS), 0, FDRY_E_BADIMAGE, "head of an object" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_KINDS), 0x81, FDRY_E_VERSION, "kinds 0x81" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_CODEC), 2, FDRY_E_VERSION, "codec 2" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_CODEC), 0, FDRY_E_BADIMAGE, "sizes of an object" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_FLAGS), 1, FDRY_E_BADIMAGE, "head of an object" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_SIZE), 1, FDRY_E_CORRUPT, "not one frame of its size" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_SIZE + 3), 0x7f, FDRY_E_BADIMAGE, "sizes of an object" },
	{ OBJECT(FDRY_PACK_OBJECT_AT_ZERO), 1, FDRY_E_BADIMAGE, "head of an object" },
	{ END(0), 0, FDRY_E_BADIMAGE, "its end is not" },
	{ END(FDRY_PACK_END_AT_ZERO), 1, FDRY_E_BADIMAGE, "its end is not" },
};

/* The first object that is compressed and links to nothing: a kernel. */
static unsigned int kernel_in(const struct mem *m)
{
	unsigned int i;

	for (i = 0;
	     m->b.data[object_at(m, i) + FDRY_PACK_OBJECT_AT_KINDS] != 1 << FDRY_OBJECT_KERNEL; i++)
		;
	return i;
}

START_TEST(fields_are_checked)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL), c;
	size_t parts[] = { 0, FDRY_PACK_HEAD, object_at(&m, kernel_in(&m)), object_at(&m, 7) };
	struct fdry_pack_report r;
	size_t i;
	int err;

	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		c = (struct mem){ .at = 0 };
		ok(fdry_buf_put(&c.b, m.b.data, m.b.len));
		c.b.data[parts[rules[i].part] + rules[i].field] = (uint8_t)rules[i].value;
		/* a pack of the same size gets a correct id, so that only the field is wrong */
		if (rules[i].part == 1 && rules[i].field != FDRY_PACK_IMAGE_AT_LEN + 1)
			reseal(&c, 7);
		if (rules[i].field == FDRY_PACK_AT_BYTES + 1 && !rules[i].part)
			reseal(&c, 7);
		err = import_mem(to, &c, NULL, &r);
		ck_assert_msg(err == -rules[i].err && strstr(fdry_last_error(), rules[i].text),
			      "rule %zu: %s: %s", i, fdry_error_name(err),
			      err ? fdry_last_error() : "");
		fdry_buf_release(&c.b);
	}
	fdry_buf_release(&m.b);
}
END_TEST

static void swap32(uint8_t *a, uint8_t *b)
{
	uint8_t t[32];

	memcpy(t, a, 32);
	memcpy(a, b, 32);
	memcpy(b, t, 32);
}

START_TEST(lists_ascend)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL);
	size_t at = object_at(&m, 6) + FDRY_PACK_OBJECT_HEAD; /* the manifest's links */
	const char *const two[] = { "a", "b" };
	struct fdry_pack_report r;

	swap32(m.b.data + at, m.b.data + at + 32);
	reseal(&m, 7);
	fails(BADIMAGE, "links of an object are not in order", import_mem(to, &m, NULL, &r));
	fdry_buf_release(&m.b);
	ok(fdry_ref_set(from, "a", &images[0], NULL));
	ok(fdry_ref_set(from, "b", &images[0], NULL));
	m = export_to_mem(from, two, 2, NULL, NULL);
	m.b.data[FDRY_PACK_HEAD + FDRY_PACK_IMAGE_HEAD] = 'b';
	reseal(&m, 7);
	fails(BADIMAGE, "images are not in order", import_mem(to, &m, NULL, &r));
	fdry_buf_release(&m.b);
}
END_TEST

/* A body with bytes behind its frame, which would be stored with it. */
START_TEST(a_body_is_one_frame)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL), c = { .at = 0 };
	size_t at = object_at(&m, kernel_in(&m)), end = object_at(&m, kernel_in(&m) + 1);
	struct fdry_pack_report r;

	ok(fdry_buf_put(&c.b, m.b.data, end));
	ok(fdry_buf_put(&c.b, "x", 1));
	ok(fdry_buf_put(&c.b, m.b.data + end, m.b.len - end));
	fdry_set64(c.b.data + at + FDRY_PACK_OBJECT_AT_BODY,
		   fdry_get64(c.b.data + at + FDRY_PACK_OBJECT_AT_BODY) + 1);
	fails(CORRUPT, "not one frame", import_mem(to, &c, NULL, &r));
	fdry_buf_release(&c.b);
	fdry_buf_release(&m.b);
}
END_TEST

START_TEST(only_images_are_named)
{
	struct mem m = export_to_mem(from, image_names, 1, NULL, NULL);
	struct fdry_pack_report r;
	struct fdry_oid oid;

	memcpy(m.b.data + FDRY_PACK_HEAD, m.b.data + object_at(&m, 0), 32);
	reseal(&m, 7);
	fails(INVAL, "is not an image", import_mem(to, &m, NULL, &r));
	fails(NOENT, "no ref", fdry_ref_get(to, "one", &oid));
	fdry_buf_release(&m.b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_pack_format");
	TCase *tc = tcase_create("format");

	tcase_add_checked_fixture(tc, pack_setup, pack_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, fields_are_checked);
	tcase_add_test(tc, lists_ascend);
	tcase_add_test(tc, a_body_is_one_frame);
	tcase_add_test(tc, only_images_are_named);
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
