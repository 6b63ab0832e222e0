// SPDX-License-Identifier: Apache-2.0
/* Unit tests of manifests whose sections about pinned memory are damaged. */
#include <stdlib.h>

#include "image/manifest.h"
#include "mm/region.h"
#include "tests/lib/test.h"

#define BASE 0x500000000000ull
#define put(buf, ...) ok(fdry_buf_put(&(buf), &(__VA_ARGS__), sizeof(__VA_ARGS__)))
#define entry(w, member, type, i) (((type *)(void *)(w)->member.data)[i])
#define DAMAGE(name, body) static void name(struct fdry_manifest_writer *w) { body; }

static struct fdry_oid oid(uint8_t b)
{
	return (struct fdry_oid){ .b = { b } };
}

#define PIN 0x40000000000ull

/* Two pinned allocations and one that was registered. The first has an input in its middle, in a
 * host segment with that address; the second has scratch behind its content. */
static void fill_pinned(struct fdry_manifest_writer *w)
{
	w->base = w->end = BASE;
	put(w->hosts, (struct fdry_mf_host){ .size = 5000, .align = 256 });
	put(w->hosts, (struct fdry_mf_host){ .size = 3ull << 20, .align = 4096 });
	put(w->pinned, (struct fdry_mf_pinned){ .addr = PIN, .size = 3 << 20 });
	put(w->pinned, (struct fdry_mf_pinned){ .addr = PIN + (4 << 20), .size = 8192 });
	put(w->pinned, (struct fdry_mf_pinned){ .addr = PIN + (5 << 20) + 8,
						.size = 100,
						.kind = FDRY_MF_PINNED_REGISTERED });
	put(w->pinned_roles, (struct fdry_mf_pinned_role){ .addr = PIN + 4104,
							   .size = 4992,
							   .role = FDRY_ROLE_EXTERNAL });
	put(w->pinned_roles, (struct fdry_mf_pinned_role){ .addr = PIN + (4 << 20) + 4096,
							   .size = 4096,
							   .role = FDRY_ROLE_SCRATCH });
	put(w->pinned_chunks,
	    (struct fdry_mf_pinned_chunk){ .addr = PIN, .size = 4104, .oid = oid(21) });
	put(w->pinned_chunks, (struct fdry_mf_pinned_chunk){
				      .addr = PIN + (4 << 20), .size = 4096, .oid = oid(22) });
	put(w->host_places, (struct fdry_mf_host_place){ .segment = 0, .addr = PIN + 4096 });
}

START_TEST(pinned_memory_is_found)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };
	struct fdry_manifest m;
	struct fdry_oid *links;
	size_t n;

	fill_pinned(&w);
	ok(fdry_manifest_encode(&w, &b));
	ok(fdry_manifest_init((struct fdry_span){ b.data, b.len }, &m));
	ok(fdry_manifest_links(&m, &links, &n));
	ck_assert_uint_eq(n, 2);
	free(links);
	ck_assert_uint_eq(fdry_manifest_host_place(&m, 0), PIN + 4096);
	ck_assert_uint_eq(fdry_manifest_host_place(&m, 1), 0);
	ck_assert_ptr_eq(fdry_manifest_pinned(&m, PIN + (4 << 20) + 8191, 1), &m.pinned[1]);
	ck_assert_ptr_null(fdry_manifest_pinned(&m, PIN + (4 << 20) + 8191, 2));
	ck_assert_ptr_null(fdry_manifest_pinned(&m, PIN - 1, 1));
	fdry_buf_release(&b);
	fdry_manifest_writer_release(&w);
}
END_TEST

#define pin(i) entry(w, pinned, struct fdry_mf_pinned, i)
#define pin_role(i) entry(w, pinned_roles, struct fdry_mf_pinned_role, i)
#define pin_chunk(i) entry(w, pinned_chunks, struct fdry_mf_pinned_chunk, i)
#define host_place(i) entry(w, host_places, struct fdry_mf_host_place, i)
DAMAGE(pinned_kind, pin(1).kind = 2)
DAMAGE(pinned_reserved, pin(1).reserved = 1)
DAMAGE(pinned_empty, pin(2).size = 0)
DAMAGE(pinned_overlap, pin(0).size = (4 << 20) + 1)
DAMAGE(pinned_low, pin(0).addr = 4095)
DAMAGE(pinned_high, pin(2).size = 1ull << 47)
DAMAGE(pinned_wraps, pin(2).size = -8ull)
DAMAGE(pinned_in_region, w->base = PIN + (4 << 20); w->end = w->base + 8)
DAMAGE(pinned_role_content, pin_role(0).role = FDRY_ROLE_CONTENT)
DAMAGE(pinned_role_unknown, pin_role(1).role = FDRY_ROLE_EXTERNAL + 1)
DAMAGE(pinned_role_reserved, pin_role(1).reserved = 1)
DAMAGE(pinned_role_over, pin_role(1).size += 1)
DAMAGE(pinned_role_twice, pin_role(1) = pin_role(0))
DAMAGE(pinned_role_empty, pin_role(0).size = 0)
DAMAGE(pinned_chunk_empty, pin_chunk(0).size = 0)
DAMAGE(pinned_chunk_large, pin_chunk(0).size = FDRY_MF_CHUNK_MAX + 1)
DAMAGE(pinned_chunk_outside, pin_chunk(1).addr += 8192)
DAMAGE(pinned_chunk_wraps, pin_chunk(1).addr = -8ull)
DAMAGE(pinned_chunk_twice, pin_chunk(1) = pin_chunk(0))
DAMAGE(pinned_chunk_over, pin_chunk(0).size += 1)
DAMAGE(pinned_chunk_in_scratch, pin_chunk(1).addr += 1)
DAMAGE(host_place_none, host_place(0).segment = 2)
DAMAGE(host_place_reserved, host_place(0).reserved = 1)
DAMAGE(host_place_odd, host_place(0).addr += 8)
DAMAGE(host_place_outside, host_place(0).addr += 3 << 20)
DAMAGE(host_place_before, host_place(0).addr = PIN - 16)
DAMAGE(host_place_high, host_place(0).addr = -16ull)
DAMAGE(host_place_twice, put(w->host_places, host_place(0)))

static const struct {
	const char *says;
	void (*damage)(struct fdry_manifest_writer *w);
} pinned_damages[] = {
	{ "pinned allocation 1 is of an unknown kind", pinned_kind },
	{ "pinned allocation 1 is of an unknown kind", pinned_reserved },
	{ "pinned allocation 2 overlaps another", pinned_empty },
	{ "pinned allocation 1 overlaps another", pinned_overlap },
	{ "pinned allocation 0 overlaps another", pinned_low },
	{ "pinned allocation 2 overlaps another", pinned_high },
	{ "pinned allocation 2 overlaps another", pinned_wraps },
	{ "pinned allocation 1 lies in the region", pinned_in_region },
	{ "pinned role 0 is unknown", pinned_role_content },
	{ "pinned role 1 is unknown", pinned_role_unknown },
	{ "pinned role 1 is unknown", pinned_role_reserved },
	{ "pinned role 1 does not lie", pinned_role_over },
	{ "pinned role 1 does not lie", pinned_role_twice },
	{ "pinned role 0 does not lie", pinned_role_empty },
	{ "pinned chunk 0 does not lie in a pinned", pinned_chunk_empty },
	{ "pinned chunk 0 does not lie in a pinned", pinned_chunk_large },
	{ "pinned chunk 1 does not lie in a pinned", pinned_chunk_outside },
	{ "pinned chunk 1 does not lie in a pinned", pinned_chunk_wraps },
	{ "pinned chunk 1 does not lie in a pinned", pinned_chunk_twice },
	{ "pinned chunk 0 does not lie in content", pinned_chunk_over },
	{ "pinned chunk 1 does not lie in content", pinned_chunk_in_scratch },
	{ "host segment of place 0 does not lie", host_place_none },
	{ "host segment of place 0 does not lie", host_place_reserved },
	{ "host segment of place 0 does not lie", host_place_odd },
	{ "host segment of place 0 does not lie", host_place_outside },
	{ "host segment of place 0 does not lie", host_place_before },
	{ "host segment of place 0 does not lie", host_place_high },
	{ "host segment of place 1 does not lie", host_place_twice },
};

START_TEST(every_pinned_field_is_checked)
{
	struct fdry_manifest_writer w = { 0 };
	struct fdry_buf b = { 0 };

	fill_pinned(&w);
	pinned_damages[_i].damage(&w);
	fails(BADIMAGE, pinned_damages[_i].says, fdry_manifest_encode(&w, &b));
	ck_assert_ptr_null(b.data);
	fdry_manifest_writer_release(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image_manifest_check_pinned");
	TCase *tc = tcase_create("pinned memory");

	tcase_add_test(tc, pinned_memory_is_found);
	tcase_add_loop_test(tc, every_pinned_field_is_checked, 0,
			    sizeof(pinned_damages) / sizeof(pinned_damages[0]));
	suite_add_tcase(suite, tc);
	return test_main(suite);
}
