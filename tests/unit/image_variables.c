// SPDX-License-Identifier: Apache-2.0
/*
 * Unit tests of module variables in an image. A load and a restore bring back the values that the
 * program or a kernel has written. Values that cannot be kept are refused by name.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "image/manifest.h"
#include "tests/lib/image.h"

enum { BUMP = 1, BUMP_BY, PICK, FOLLOW, SWAP, DEREF };

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

static CUdeviceptr variable_of_library(CUlibrary library, const char *name)
{
	CUdeviceptr addr = 0;
	size_t size = 0;

	cuda_ok(cuLibraryGetGlobal, &addr, &size, library, name);
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

/* The only content that is not zero is the value of a variable. */
static void seal_counter(void *arg)
{
	struct vars v;

	(void)arg;
	vars_make(&v);
	kernel_add(&v, v.module, BUMP, "bump", 0);
	cuda_ok(cuMemsetD8_v2, v.w.a, 0, BYTES);
	cuda_ok(cuMemsetD8_v2, v.w.b, 0, BYTES);
	word_set(variable(v.module, "counter"), 50);
	vars_seal(&v, "img");
}

/* Kernels of a library, as PyTorch's are; the program writes the variable by the library, too. */
static void seal_library(void *arg)
{
	CUdeviceptr counter;
	CUlibrary library;
	CUkernel bump;
	size_t len, size;
	struct vars v;
	void *code = test_sim_cubin("variables", &len), *args[] = { &v.out.addr };

	(void)arg;
	vars_make(&v);
	cuda_ok(cuLibraryLoadData, &library, code, NULL, NULL, 0, NULL, NULL, 0);
	free(code);
	cuda_ok(cuLibraryGetKernel, &bump, library, "bump");
	capture_start(&v.w);
	cuda_ok(cuLaunchKernel, (CUfunction)bump, 1, 1, 1, 1, 1, 1, 0, v.w.stream, args, NULL);
	ok(fdry_capture_graph(v.w.cap, BUMP, "bump", capture_stop(&v.w)));
	cuda_ok(cuLibraryGetGlobal, &counter, &size, library, "counter");
	word_set(counter, 50);
	word_set(variable(v.module, "counter"), 70); /* of another load, which no graph uses */
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
	ok(fdry_image_restore(img, NULL)); /* also a variable that had the value of its code */
	ck_assert_uint_eq(run(img, BUMP_BY), 17);
	fdry_image_unload(img);
}
END_TEST

/* --- bytes that change on their way --- */

static CUresult (*copy_to)(CUdeviceptr, const void *, size_t, CUstream);
static size_t damaged; /* copies of this size arrive with another byte at their end */

static CUresult copy_badly(CUdeviceptr to, const void *from, size_t len, CUstream on)
{
	uint8_t other[64];

	if (len != damaged || len > sizeof(other))
		return copy_to(to, from, len, on);
	memcpy(other, from, len);
	other[len - 1] ^= 0x10;
	return copy_to(to, other, len, on);
}

START_TEST(values_are_compared)
{
	struct fdry_image *img = NULL;
	struct fdry_driver *drv;

	test_child(seal_both, NULL);
	drv = (struct fdry_driver *)(uintptr_t)test_sim();
	img = load("img");
	copy_to = drv->cuMemcpyHtoDAsync_v2;
	drv->cuMemcpyHtoDAsync_v2 = copy_badly;
	damaged = sizeof(uint64_t);
	fails(CORRUPT, "variable counter: other bytes arrived in the device's memory",
	      fdry_image_restore(img, NULL));
	fdry_image_unload(img);
	fails(CORRUPT, "variable counter: other bytes arrived in the device's memory",
	      fdry_image_load(load_store(), "img", NULL, &img));
	damaged = 0;
	img = load("img");
	ck_assert_uint_eq(run(img, BUMP), 51);
	fdry_image_unload(img);
}
END_TEST

START_TEST(values_of_a_library)
{
	struct fdry_image *img;

	test_child(seal_library, NULL);
	img = load("img");
	ck_assert_uint_eq(run(img, BUMP), 51);
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

/* The image "img0", "img1" or "plain2", by @arg, at a base of its own; the last one has no values.
 */
static void seal_elsewhere(void *arg)
{
	int i = *(const int *)arg;
	struct vars v;
	char ref[8];

	work_base = TEST_CAPTURE_BASE + ((uint64_t)i << 34);
	vars_make(&v);
	graphs_add(&v);
	if (i < 2)
		word_set(variable(v.module, "counter"), 50 + 50 * (uint64_t)i);
	snprintf(ref, sizeof(ref), "%s%d", i < 2 ? "img" : "plain", i);
	vars_seal(&v, ref);
}

/* Images of one module that are loaded at the same time have variables of their own, in any order
 * of loads and restores. */
START_TEST(images_beside_each_other)
{
	static const char *const refs[] = { "img0", "img1", "plain2" };
	static const uint64_t counter[] = { 50, 100, 7 };
	struct fdry_image *img[3];
	uint64_t n[3];
	int i, k;

	for (i = 0; i < 3; i++)
		test_child(seal_elsewhere, &i);
	for (i = 0; i < 3; i++) {
		k = (i + _i) % 3;
		img[k] = load(refs[k]);
		n[k] = counter[k];
		ck_assert_uint_eq(run(img[k], BUMP), ++n[k]);
	}
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(run(img[i], BUMP), ++n[i]);
	ok(fdry_image_restore(img[0], NULL));
	n[0] = counter[0];
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(run(img[i], BUMP_BY), n[i] + 10);
	for (i = 0; i < 3; i++)
		fdry_image_unload(img[i]);
}
END_TEST

static const uint8_t pair[16] = "a value of pair";

/* "img", of which one value is the bytes of @pair; and a pack of it. */
static void seal_pair(void *arg)
{
	struct vars v;
	char name[300];
	int fd;

	(void)arg;
	vars_make(&v);
	graphs_add(&v);
	word_set(variable(v.module, "counter"), 50);
	cuda_ok(cuMemcpyHtoD_v2, variable(v.module, "pair"), pair, sizeof(pair));
	ok(work_seal(&v.w, "img"));
	snprintf(name, sizeof(name), "%s/pack", dir);
	fd = open(name, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	ok(fdry_store_export(v.w.store, (const char *const[]){ "img" }, 1, fd, NULL, NULL));
	close(fd);
	work_end(&v.w);
}

/* Change the value of pair in the store. */
static void pair_damage(void)
{
	char name[340];
	struct stat st;
	uint8_t *file, *at;
	int fd;

	snprintf(name, sizeof(name), "%s/data.mdb", path);
	fd = open(name, O_RDWR);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(file != MAP_FAILED);
	at = memmem(file, (size_t)st.st_size, pair, sizeof(pair));
	ck_assert_ptr_nonnull(at);
	at[3] ^= 1;
	munmap(file, (size_t)st.st_size);
	close(fd);
}

static uint64_t faults(uint32_t flags)
{
	struct fdry_verify_opts opts = { .sz = sizeof(opts), .flags = flags };
	struct fdry_verify_report r = { .sz = sizeof(r) };

	ok(fdry_store_verify(path, &opts, &r));
	return r.damaged;
}

/* The chunks of values are the image's: a collection keeps them, a damaged one is found and named,
 * and a pack has them for a repair. */
START_TEST(values_stay_in_the_store)
{
	struct fdry_image *img = NULL;
	char pack[300];

	test_child(seal_pair, NULL);
	ok(fdry_store_gc(load_store(), NULL, NULL));
	ck_assert_uint_eq(faults(_i ? FDRY_VERIFY_FAST : 0), 0);
	pair_damage();
	ck_assert_uint_eq(faults(_i ? FDRY_VERIFY_FAST : 0), 1);
	fails(CORRUPT, "value of variable pair", fdry_image_load(load_store(), "img", NULL, &img));
	snprintf(pack, sizeof(pack), "%s/pack", dir);
	ok(setenv("FOUNDRY_REPAIR", pack, 1));
	img = load("img");
	ok(unsetenv("FOUNDRY_REPAIR"));
	ck_assert_uint_eq(run(img, BUMP), 51);
	fdry_image_unload(img);
	ck_assert_uint_eq(faults(0), 0);
}
END_TEST

static uint64_t bytes_got(void)
{
	struct fdry_telemetry t[200];
	size_t n, i;

	ok(fdry_telemetry_at(t, 200, &n));
	for (i = 0; i < n && strcmp(t[i].name, "foundry_store_get_bytes_total"); i++)
		;
	return t[i].value;
}

/* Store "img" again as "bad", whose first value, of 8 bytes, is said to be a chunk of 2 MiB. */
static void size_fake(void)
{
	struct fdry_mf_variable *v;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	uint32_t i = 0;

	image_manifest_read(&bytes, &m);
	while (m.variables[i].size != 2 << 20)
		i++;
	v = image_manifest_at(&bytes, m.variables);
	ck_assert_uint_eq(v->size, 8);
	v->oid = v[i].oid;
	image_manifest_store(&bytes, &m, "bad");
}

/* A few stored bytes may be very many uncompressed. A value of another size is not read. */
START_TEST(size_is_checked_first)
{
	struct fdry_image *img = NULL;
	uint64_t before;

	test_child(seal_both, NULL);
	size_fake();
	before = bytes_got();
	fails(BADIMAGE, "it has 2097152 bytes, the manifest says 8",
	      fdry_image_load(load_store(), "bad", NULL, &img));
	ck_assert_uint_lt(bytes_got() - before, 1 << 20);
}
END_TEST

START_TEST(a_push_asks_for_private)
{
	const char *const name = "img";

	test_child(seal_counter, NULL);
	fails(PERM, "bytes that no tensor declares constant, the first in module variable counter;",
	      fdry_store_push(load_store(), &name, 1, "oci://127.0.0.1:9/x:y", NULL, NULL));
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

/* --- pointers to variables --- */

/* Exchange the variable at @with for @value. */
static void swap_add(struct vars *v, CUmodule module, CUdeviceptr with, uint64_t value)
{
	void *args[] = { &v->out.addr, &with, &value };
	CUfunction f;

	cuda_ok(cuModuleGetFunction, &f, module, "swap");
	capture_start(&v->w);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, v->w.stream, args, NULL);
	ok(fdry_capture_graph(v->w.cap, SWAP, "swap", capture_stop(&v->w)));
}

/* An address in twiddles that a number rarely has. */
static CUdeviceptr far_place(const struct vars *v)
{
	return (variable(v->module, "twiddles") + 8 * PICKED) & ~(CUdeviceptr)255;
}

/* Pointers in arguments (to counter), in content (into twiddles) and in the value of a variable
 * (into pair). */
static void pointers_make(struct vars *v)
{
	CUdeviceptr cells;

	vars_make(v);
	swap_add(v, v->module, variable(v->module, "counter"), 500);
	kernel_add(v, v->module, BUMP, "bump", 0);
	cuda_ok(cuMemAlloc_v2, &cells, 1 << 20);
	cuda_ok(cuMemsetD8_v2, cells, 0x11, 1 << 20);
	word_set(cells + 4096, far_place(v));
	word_set(cells + 8, variable(v->module, "pair"));
	kernel_add(v, v->module, DEREF, "deref", cells + 4096);
	kernel_add(v, v->module, PICK, "deref", cells + 8);
	kernel_add(v, v->module, FOLLOW, "follow", 0);
	word_set(far_place(v), 0x1234567);
	word_set(variable(v->module, "pointer"), variable(v->module, "pair") + 8);
}

/* Three loads of one module, as of a library that loads its code for each plan. The program wrote
 * the counter of one, kernels have pointers to two, and two are equal. */
static void seal_loads(void *arg)
{
	CUmodule second, third;
	CUdeviceptr cell;
	struct vars v;
	size_t len;
	void *code = test_sim_cubin("variables", &len);

	(void)arg;
	vars_make(&v);
	cuda_ok(cuModuleLoadData, &second, code);
	cuda_ok(cuModuleLoadData, &third, code);
	free(code);
	word_set(variable(second, "counter"), 50);
	cuda_ok(cuMemAlloc_v2, &cell, 8);
	word_set(cell, variable(v.module, "counter"));
	kernel_add(&v, v.module, BUMP, "bump", 0);
	kernel_add(&v, second, BUMP_BY, "bump", 0);
	kernel_add(&v, third, PICK, "bump", 0);
	kernel_add(&v, third, DEREF, "deref", cell);
	swap_add(&v, v.module, variable(second, "counter"), 500);
	vars_seal(&v, "img");
}

START_TEST(each_load_has_its_variables)
{
	struct fdry_image *img;
	int round;

	test_child(seal_loads, NULL);
	img = load("img");
	for (round = 0; round < 2; round++) {
		ck_assert_uint_eq(run(img, BUMP), 8);
		ck_assert_uint_eq(run(img, BUMP_BY), 51);
		ck_assert_uint_eq(run(img, BUMP_BY), 52);
		ck_assert_uint_eq(run(img, PICK), 8);
		ck_assert_uint_eq(run(img, BUMP), 9);
		ck_assert_uint_eq(run(img, DEREF), 9);
		ck_assert_uint_eq(run(img, SWAP), 52);
		ck_assert_uint_eq(run(img, BUMP_BY), 501);
		ck_assert_uint_eq(run(img, PICK), 9);
		ok(fdry_image_restore(img, NULL));
	}
	fdry_image_unload(img);
}
END_TEST

static void seal_pointers(void *arg)
{
	struct fdry_seal_report report = { .sz = sizeof(report) };
	char first[FDRY_ID_SIZE], again[FDRY_ID_SIZE];
	struct vars v;

	(void)arg;
	pointers_make(&v);
	ok(fdry_capture_seal(v.w.cap, v.w.store, "img", first, NULL));
	ok(fdry_capture_seal(v.w.cap, v.w.store, "img", again, &report));
	ck_assert_str_eq(first, again);
	ck_assert_uint_eq(report.pointer_words, 0);
	work_end(&v.w);
}

/* One cell of content has two chunks, and only the first one has a pointer. */
static void seal_two_chunks(void *arg)
{
	char first[FDRY_ID_SIZE], again[FDRY_ID_SIZE];
	CUdeviceptr cells;
	struct vars v;

	(void)arg;
	pointers_make(&v);
	cuda_ok(cuMemAlloc_v2, &cells, 1 << 20);
	cuda_ok(cuMemsetD8_v2, cells, 0, 1 << 20);
	cuda_ok(cuMemsetD8_v2, cells, 0x11, 64 << 10);
	cuda_ok(cuMemsetD8_v2, cells + (512 << 10), 0x12, 64 << 10);
	word_set(cells + 8, variable(v.module, "pair"));
	ok(fdry_capture_seal(v.w.cap, v.w.store, "img", first, NULL));
	ok(fdry_capture_seal(v.w.cap, v.w.store, "img", again, NULL));
	ck_assert_str_eq(first, again);
	work_end(&v.w);
}

START_TEST(chunk_beside_a_pointer)
{
	test_child(seal_two_chunks, NULL);
}
END_TEST

static void pointers_run(struct fdry_image *img)
{
	ck_assert_uint_eq(run(img, BUMP), 8);
	/* by the pointer, the value that the other kernel wrote */
	ck_assert_uint_eq(run(img, SWAP), 8);
	ck_assert_uint_eq(run(img, BUMP), 501);
	ck_assert_uint_eq(run(img, DEREF), 0x1234567);
	ck_assert_uint_eq(run(img, PICK), 100);
	ck_assert_uint_eq(run(img, FOLLOW), 200);
}

/* The image is loaded plainly, in a context of its own, compared at its first launch, hashed. */
static const uint32_t load_flags[] = { 0, FDRY_LOAD_OWN_CONTEXT, FDRY_LOAD_CHECK_AT_LAUNCH,
				       FDRY_LOAD_VERIFY | FDRY_LOAD_POISON | FDRY_LOAD_BUILD };

START_TEST(pointers_are_there_again)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = load_flags[_i] };
	struct fdry_image *img = NULL;

	test_child(seal_pointers, NULL);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	pointers_run(img);
	ok(fdry_image_restore(img, NULL));
	pointers_run(img);
	ok(fdry_image_check_content(img));
	fdry_image_unload(img);
	ok(fdry_image_load(load_store(), "img", &opts, &img));
	ok(fdry_image_restore(img, NULL)); /* before any launch */
	pointers_run(img);
	fdry_image_unload(img);
}
END_TEST

/* A graph whose object was kept from an earlier seal is sealed with its pointers. */
static void seal_kept(void *arg)
{
	struct vars v;

	(void)arg;
	pointers_make(&v);
	ok(fdry_capture_graph_fixed(v.w.cap, SWAP, 1));
	ok(fdry_capture_graph_fixed(v.w.cap, BUMP, 1));
	ok(work_seal(&v.w, "first"));
	ok(work_seal(&v.w, "img"));
	work_end(&v.w);
}

START_TEST(kept_graphs_keep_their_pointers)
{
	struct fdry_image *img;

	test_child(seal_kept, NULL);
	img = load("img");
	pointers_run(img);
	fdry_image_unload(img);
}
END_TEST

START_TEST(pointers_are_described)
{
	char *text = NULL;

	test_child(seal_pointers, NULL);
	ok(fdry_image_describe(load_store(), "img", &text));
	ck_assert_ptr_nonnull(strstr(text, "pointer in graph 5, node 0, byte 8 of its arguments: "
					   "variable counter of object "));
	ck_assert_ptr_nonnull(strstr(text, ": variable twiddles of object "));
	ck_assert_ptr_nonnull(strstr(text, "pointer in variable pointer, byte 0: variable pair of "
					   "object "));
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

/* A pointer to a variable of a load of which no graph has a kernel. */
static void pointer_to_other_load(struct vars *v)
{
	CUmodule second;
	size_t len;
	void *code = test_sim_cubin("variables", &len);

	cuda_ok(cuModuleLoadData, &second, code);
	free(code);
	swap_add(v, v->module, variable(second, "counter"), 0);
}

/* A number in weights that equals the address of a variable. */
static void number_in_weights(struct vars *v)
{
	struct fdry_tensor t = { .name = "weights",
				 .dtype = FDRY_U8,
				 .rank = 1,
				 .stride = { 1 },
				 .shape = { 1 << 20 },
				 .use = FDRY_USE_CONST };

	cuda_ok(cuMemAlloc_v2, &t.addr, 1 << 20);
	cuda_ok(cuMemsetD8_v2, t.addr, 0x11, 1 << 20);
	ok(fdry_capture_tensor(v->w.cap, &t));
	word_set(t.addr + 4096, variable(v->module, "counter"));
	kernel_add(v, v->module, BUMP, "bump", 0);
}

/* A word that may be a pointer into a large variable, or a number. */
static void number_or_pointer(struct vars *v)
{
	CUdeviceptr cells;

	cuda_ok(cuMemAlloc_v2, &cells, 1 << 20);
	cuda_ok(cuMemsetD8_v2, cells, 0x11, 1 << 20);
	word_set(cells + 4096, far_place(v) + 8);
	kernel_add(v, v->module, PICK, "pick", PICKED);
}

static void library_launch(struct vars *v, uint64_t key, CUfunction f)
{
	void *args[] = { &v->out.addr };

	capture_start(&v->w);
	cuda_ok(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, v->w.stream, args, NULL);
	ok(fdry_capture_graph(v->w.cap, key, "bump", capture_stop(&v->w)));
}

/* A kernel that is launched with two sets of attributes, so a load loads its code twice. */
static void pointer_and_two_sets(struct vars *v)
{
	CUlibrary library;
	CUkernel bump;
	CUfunction f;
	size_t len;
	void *code = test_sim_cubin("variables", &len);

	cuda_ok(cuLibraryLoadData, &library, code, NULL, NULL, 0, NULL, NULL, 0);
	free(code);
	cuda_ok(cuLibraryGetKernel, &bump, library, "bump");
	cuda_ok(cuKernelGetFunction, &f, bump);
	cuda_ok(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, bump,
		0);
	library_launch(v, BUMP, (CUfunction)bump);
	library_launch(v, BUMP_BY, f);
	word_set(v->out.addr + 16, variable_of_library(library, "counter"));
}

static const struct {
	void (*make)(struct vars *v);
	const char *says;
} refusals[] = {
	{ pointer_outside, "the word at byte 0 of the module variable pointer is 0x" },
	{ pointer_inside, "the word at byte 0 of the module variable pointer is 0x" },
	{ pointer_to_other_load, "byte 0 of its parameter 1 is 0x" },
	{ number_in_weights, "(tensor 'weights') is 0x" },
	{ number_or_pointer, "points to a place in a large module variable, or may be a number" },
	{ pointer_and_two_sets, "pointers point to its variable counter; launch it with one set" },
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
	tcase_add_test(tc, values_are_compared);
	tcase_add_test(tc, values_of_a_library);
	tcase_add_test(tc, each_load_has_its_variables);
	tcase_add_test(tc, values_are_each_images_own);
	tcase_add_loop_test(tc, images_beside_each_other, 0, 3);
	tcase_add_loop_test(tc, values_stay_in_the_store, 0, 2);
	tcase_add_test(tc, size_is_checked_first);
	tcase_add_test(tc, values_are_described);
	tcase_add_test(tc, a_push_asks_for_private);
	tcase_add_loop_test(tc, pointers_are_there_again, 0,
			    sizeof(load_flags) / sizeof(load_flags[0]));
	tcase_add_test(tc, chunk_beside_a_pointer);
	tcase_add_test(tc, kept_graphs_keep_their_pointers);
	tcase_add_test(tc, pointers_are_described);
	tcase_add_loop_test(tc, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	suite_add_tcase(s, tc);
	return test_main(s);
}
