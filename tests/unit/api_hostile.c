// SPDX-License-Identifier: Apache-2.0
/* Unit tests of images with right hashes that no seal made: loads refuse them, and take no more than what is stored. */
#include "graph/elf.h"
#include "tests/unit/handmade.h"

static void setup(void)
{
	dir_setup_in("/dev/shm");
}

/* --- kernel objects --- */

/* An image of one kernel, whose object is these bytes. */
static void kernel_image(const char *ref, const void *object, size_t len)
{
	struct handmade h;

	handmade_begin(&h);
	handmade_object(&h, object, len);
	handmade_add(&h, kernels, { .name = handmade_str(&h, "k"), .attrs = { 0, -1, 0, 0 } });
	handmade_install(&h, ref);
}

START_TEST(kernel_objects_that_lie)
{
	const struct fdry_elf_ehdr far = { .ident = { 0x7f, 'E', 'L', 'F', 2, 1, 1 }, .type = FDRY_ET_DYN, .machine = 62, .version = 1,
					   .shoff = 0x30000000, .ehsize = 64, .shentsize = 64, .shnum = 8 };
	const uint64_t wrapper[] = { 0x1466243b1, 0x4141414141414000, 0 };
	struct { const char *ref; const void *data; size_t len; } objects[] = {
		{ "text", ".version 7.0", 12 }, { "far", &far, sizeof(far) }, { "short", "\x7f" "EL", 3 }, { "wrapper", wrapper, 24 },
	};
	struct fdry_image *img;
	size_t i;

	for (i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		kernel_image(objects[i].ref, objects[i].data, objects[i].len);
		fails(BADCODE, "kernel 0 k: ", fdry_image_load(load_store(), objects[i].ref, NULL, &img));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("api_hostile");
	TCase *tc = tcase_create("hostile");

	tcase_add_checked_fixture(tc, setup, dir_teardown);
	tcase_add_test(tc, kernel_objects_that_lie);
	suite_add_tcase(s, tc);
	return test_main(s);
}
