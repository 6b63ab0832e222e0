// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of module variables in an image: values that the program or a kernel gave them are
 * there again after a load and after a restore; what cannot be kept is refused by name.
 */
#include "tests/lib/image.h"

enum { BUMP = 1, BUMP_BY, PICK, FOLLOW };

#define PICKED 299999u /* in the second chunk of the variable */

struct vars {
	struct work w;
	CUmodule module;
	struct fdry_tensor out;
};

static CUdeviceptr variable(CUmodule module, const char *name)
{
	CUdeviceptr addr = 0;
	size_t size;

	cuda_ok(cuModuleGetGlobal_v2, &addr, &size, module, name);
	return addr;
}

static void word_set(CUdeviceptr addr, uint64_t word)
{
	cuda_ok(cuMemcpyHtoD_v2, addr, &word, sizeof(word));
}

/* A graph of one launch, whose parameters are the output and @arg. */
static void kernel_add(struct vars *v, CUmodule module, uint64_t key, const char *name,
		       uint64_t arg)
{
	void *args[] = { &v->out.addr, &arg };
	CUfunction f;

	cuda_ok(cuModuleGetFunction, &f, module, name);
	capture_start(&v->w);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, v->w.stream, args, NULL);
	ok(fdry_capture_graph(v->w.cap, key, name, capture_stop(&v->w)));
}

static void vars_make(struct vars *v)
{
	size_t len;
	void *code = test_sim_cubin("variables", &len);

	work_make(&v->w);
	cuda_ok(cuModuleLoadData, &v->module, code);
	free(code);
	v->out = (struct fdry_tensor){ .name = "out", .dtype = FDRY_U64, .use = FDRY_USE_OUTPUT };
	cuda_ok(cuMemAlloc_v2, &v->out.addr, 64);
	cuda_ok(cuMemsetD8_v2, v->out.addr, 0, 64);
	ok(fdry_capture_tensor(v->w.cap, &v->out));
}

static void graphs_add(struct vars *v)
{
	kernel_add(v, v->module, BUMP, "bump", 0);
	kernel_add(v, v->module, BUMP_BY, "bump_by", 10);
	kernel_add(v, v->module, PICK, "pick", PICKED);
	kernel_add(v, v->module, FOLLOW, "follow", 0);
}

static void vars_seal(struct vars *v, const char *ref)
{
	ok(work_seal(&v->w, ref));
	work_end(&v->w);
}

/* "img": the program wrote all variables; "plain": none. */
static void seal_both(void *arg)
{
	struct vars v;

	(void)arg;
	vars_make(&v);
	graphs_add(&v);
	ok(work_seal(&v.w, "plain"));
	word_set(variable(v.module, "counter"), 50);
	word_set(variable(v.module, "twiddles") + 8 * PICKED, 0x1234567);
	word_set(v.out.addr + 8, 77);
	word_set(variable(v.module, "pointer"), v.out.addr + 8);
	vars_seal(&v, "img");
}

static uint64_t run(struct fdry_image *img, uint64_t key)
{
	uint64_t out = 0;

	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "out", &out, sizeof(out), NULL));
	return out;
}

static struct fdry_image *load(const char *ref)
{
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), ref, NULL, &img));
	return img;
}

START_TEST(values_are_there_again)
{
	struct fdry_image *img;

	test_child(seal_both, NULL);
	img = load("img");
	ck_assert_uint_eq(run(img, BUMP), 51);
	ck_assert_uint_eq(run(img, BUMP_BY), 61); /* the same variable */
	ck_assert_uint_eq(run(img, PICK), 0x1234567);
	ck_assert_uint_eq(run(img, FOLLOW), 77);
	ok(fdry_image_restore(img, NULL));
	ck_assert_uint_eq(run(img, BUMP_BY), 60);
	fdry_image_unload(img);
	img = load("plain");
	ck_assert_uint_eq(run(img, BUMP), 8);
	ck_assert_uint_eq(run(img, PICK), 0);
	ck_assert_uint_eq(run(img, FOLLOW), 0);
	fdry_image_unload(img);
}
END_TEST

/* Code with values is loaded for its image alone. */
START_TEST(values_are_each_images_own)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = FDRY_LOAD_OWN_CONTEXT };
	struct fdry_image *first, *second = NULL;

	test_child(seal_both, NULL);
	first = load("img");
	ck_assert_uint_eq(run(first, BUMP), 51);
	fdry_image_unload(first);
	ok(fdry_image_load(load_store(), "img", &opts, &second));
	ck_assert_uint_eq(run(second, BUMP), 51);
	ck_assert_uint_eq(run(second, PICK), 0x1234567);
	fdry_image_unload(second);
}
END_TEST

/* The chunks of values are the image's: a collection keeps them, and a damaged one is named. */
START_TEST(values_stay_in_the_store)
{
	struct fdry_image *img = NULL;

	test_child(seal_both, NULL);
	ok(fdry_store_gc(load_store(), NULL, NULL));
	img = load("img");
	ck_assert_uint_eq(run(img, BUMP), 51);
	fdry_image_unload(img);
}
END_TEST

START_TEST(values_are_described)
{
	char *text = NULL;

	test_child(seal_both, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "variable counter of object "));
	ck_assert_ptr_nonnull(strstr(text, "variable twiddles of object "));
	ck_assert_ptr_nonnull(strstr(text, ", bytes 2097152 to 2399999"));
	free(text);
	ok(fdry_image_describe(load_store(), "plain", &text));
	ck_assert_ptr_null(strstr(text, "variable "));
	free(text);
}
END_TEST

/* A pointer in a variable to memory that the image does not hold. */
static void pointer_outside(struct vars *v)
{
	word_set(variable(v->module, "pointer"), v->w.before);
	kernel_add(v, v->module, FOLLOW, "follow", 0);
}

/* A pointer into a large allocation, which as content could be a number. */
static void pointer_inside(struct vars *v)
{
	CUdeviceptr large;

	ok(fdry_capture_pause(v->w.cap));
	cuda_ok(cuMemAlloc_v2, &large, 4 << 20);
	ok(fdry_capture_resume(v->w.cap));
	word_set(variable(v->module, "pointer"), large + 8);
	kernel_add(v, v->module, FOLLOW, "follow", 0);
}

/* Two loads of one module, of which the program changed one. */
static void two_loads(struct vars *v)
{
	CUmodule second;
	size_t len;
	void *code = test_sim_cubin("variables", &len);

	cuda_ok(cuModuleLoadData, &second, code);
	free(code);
	kernel_add(v, v->module, BUMP, "bump", 0);
	word_set(variable(second, "counter"), 50);
	kernel_add(v, second, BUMP_BY, "bump", 0);
}

static const struct {
	void (*make)(struct vars *v);
	const char *says;
} refusals[] = {
	{ pointer_outside, "the word at byte 0 of the module variable pointer is 0x" },
	{ pointer_inside, "the word at byte 0 of the module variable pointer is 0x" },
	{ two_loads, "variable counter of its module has another value in another load" },
};

static void seal_refused(void *arg)
{
	int i = *(int *)arg;
	struct vars v;

	vars_make(&v);
	refusals[i].make(&v);
	fails(REFUSED, refusals[i].says, work_seal(&v.w, "img"));
	work_end(&v.w);
}

START_TEST(refused)
{
	test_child(seal_refused, &_i);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_variables");
	TCase *tc = tcase_create("variables");

	tcase_add_checked_fixture(tc, dir_setup, dir_teardown);
	tcase_add_test(tc, values_are_there_again);
	tcase_add_test(tc, values_are_each_images_own);
	tcase_add_test(tc, values_stay_in_the_store);
	tcase_add_test(tc, values_are_described);
	tcase_add_loop_test(tc, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
