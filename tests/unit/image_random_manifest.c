// SPDX-License-Identifier: Apache-2.0
/* Unit tests of manifests whose generators and draws are damaged. */
#include "image/manifest.h"
#include "tests/lib/image.h"

#define BASE 0x500000000000ull

/* Two graphs, two generators, content, then external memory. */
static void writer_make(struct fdry_manifest_writer *w)
{
	struct fdry_mf_segment s[] = { { BASE, 4096, FDRY_ROLE_CONTENT, 0 },
				       { BASE + 4096, 4096, FDRY_ROLE_EXTERNAL, 0 } };
	struct fdry_mf_graph g[] = { { .key = 1 }, { .key = 2 } };
	struct fdry_mf_generator gen[2] = { { 0 } };
	struct fdry_mf_rng_use d[] = { { 0, 0, BASE, BASE + 8, 4 },
				       { 0, 1, BASE + 16, BASE + 24, 4 },
				       { 1, 1, BASE + 4088, BASE, 0 } };

	memset(w, 0, sizeof(*w));
	w->base = BASE;
	w->end = BASE + 8192;
	ok(fdry_manifest_add_str(w, "g", &gen[0].name));
	ok(fdry_manifest_add_str(w, "h", &gen[1].name));
	ok(fdry_buf_put(&w->segments, s, sizeof(s)));
	ok(fdry_buf_put(&w->graphs, g, sizeof(g)));
	ok(fdry_buf_put(&w->generators, gen, sizeof(gen)));
	ok(fdry_buf_put(&w->rng_uses, d, sizeof(d)));
}

#define gen(i) ((struct fdry_mf_generator *)(void *)w->generators.data)[i]
#define draw(i) ((struct fdry_mf_rng_use *)(void *)w->rng_uses.data)[i]
#define DAMAGE(fn, what) static void fn(struct fdry_manifest_writer *w) { what; }
DAMAGE(none, (void)w)
DAMAGE(gen_order, uint32_t n = gen(0).name; gen(0).name = gen(1).name; gen(1).name = n)
DAMAGE(gen_nameless, gen(0).name = 0)
DAMAGE(gen_far, gen(1).name = 1u << 30)
DAMAGE(gen_kind, gen(1).kind = 1)
DAMAGE(draw_graph, draw(2).graph = 2)
DAMAGE(draw_generator, draw(1).generator = 2)
DAMAGE(draw_order, draw(1).generator = 0)
DAMAGE(draw_order_graph, draw(0).graph = 1; draw(0).generator = 0)
DAMAGE(draw_askew, draw(0).seed += 4)
DAMAGE(draw_external, draw(0).offset = BASE + 4096)
DAMAGE(draw_below, draw(0).seed = BASE - 8)
DAMAGE(draw_beyond, draw(0).seed = BASE + 8192)
DAMAGE(draw_wraps, draw(0).seed = UINT64_MAX - 7)
DAMAGE(draw_one_cell, draw(0).offset = draw(0).seed)
DAMAGE(draw_shared, draw(1).offset = draw(0).seed)

static const struct {
	const char *words;
	int code;
	void (*damage)(struct fdry_manifest_writer *w);
} damages[] = {
	{ "", 0, none },
	{ "generator 1 is out of order", FDRY_E_BADIMAGE, gen_order },
	{ "generator 0 is out of order or has no name", FDRY_E_BADIMAGE, gen_nameless },
	{ "generator 1 is out of order or has no name", FDRY_E_BADIMAGE, gen_far },
	{ "random numbers of kind 1", FDRY_E_VERSION, gen_kind },
	{ "rng use 2 names a missing graph or generator", FDRY_E_BADIMAGE, draw_graph },
	{ "rng use 1 names a missing graph or generator", FDRY_E_BADIMAGE, draw_generator },
	{ "rng use 1 is out of order", FDRY_E_BADIMAGE, draw_order },
	{ "rng use 1 is out of order", FDRY_E_BADIMAGE, draw_order_graph },
	{ "rng use 0 has a slot outside", FDRY_E_BADIMAGE, draw_askew },
	{ "rng use 0 has a slot outside", FDRY_E_BADIMAGE, draw_external },
	{ "rng use 0 has a slot outside", FDRY_E_BADIMAGE, draw_below },
	{ "rng use 0 has a slot outside", FDRY_E_BADIMAGE, draw_beyond },
	{ "rng use 0 has a slot outside", FDRY_E_BADIMAGE, draw_wraps },
	{ "rng use 0 has a slot outside", FDRY_E_BADIMAGE, draw_one_cell },
	{ "rng use 1 has a slot outside", FDRY_E_BADIMAGE, draw_shared },
};

START_TEST(damaged_manifests)
{
	struct fdry_manifest_writer w;
	struct fdry_buf out = { 0 };
	int err;

	writer_make(&w);
	damages[_i].damage(&w);
	err = fdry_manifest_encode(&w, &out);
	ck_assert_msg(err == -damages[_i].code &&
			      (!err || strstr(fdry_last_error(), damages[_i].words)),
		      "%d: %s, not '%s'", err, fdry_last_error(), damages[_i].words);
	fdry_buf_release(&out);
	fdry_manifest_writer_release(&w);
}
END_TEST
int main(void)
{
	Suite *s = suite_create("image_random_manifest");
	TCase *t = tcase_create("manifests");

	tcase_add_loop_test(t, damaged_manifests, 0, (int)(sizeof(damages) / sizeof(damages[0])));
	suite_add_tcase(s, t);
	return test_main(s);
}
