// SPDX-License-Identifier: Apache-2.0
/* image.c - see image.h. */
#include "tests/lib/image.h"

#include "image/audit.h"

#include "tests/lib/va_cached.h"

float vector_value(int i, float salt)
{
	return salt + 0.5f * (float)(i % 97);
}

void vector_fill(float *v, float salt)
{
	int i;

	for (i = 0; i < N; i++)
		v[i] = vector_value(i, salt);
}

CUdeviceptr work_base = TEST_CAPTURE_BASE;
int work_device;
uint32_t work_flags;

long live_objects(void)
{
	return test_sim_live(NULL) - test_va_cached();
}

long live_before(void)
{
	return test_sim_before() - test_va_cached();
}

void device_use(int ordinal)
{
	CUcontext ctx;

	cuda_ok(cuDevicePrimaryCtxRetain, &ctx, ordinal);
	cuda_ok(cuCtxSetCurrent, ctx);
}

void work_make(struct work *w)
{
	struct fdry_capture_opts opts = {
		.sz = sizeof(opts), .device = work_device, .flags = work_flags, .base = work_base,
		.size = 1ull << 34
	};
	float v[N];
	size_t len;

	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	test_hook_load();
	ok(fdry_hook_install(NULL));
	test_hook();
	device_use(work_device);
	cuda_ok(cuMemAlloc_v2, &w->before, BYTES);
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &w->store));
	ok(fdry_capture_begin(&opts, &w->cap));
	cuda_ok(cuStreamCreate, &w->stream, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuMemAlloc_v2, &w->a, BYTES);
	cuda_ok(cuMemAlloc_v2, &w->b, BYTES);
	cuda_ok(cuMemAlloc_v2, &w->c, BYTES);
	vector_fill(v, 7);
	cuda_ok(cuMemcpyHtoD_v2, w->a, v, BYTES);
	vector_fill(v, 100);
	cuda_ok(cuMemcpyHtoD_v2, w->b, v, BYTES);
	w->cubin = test_sim_cubin("kernels", &len);
	cuda_ok(cuModuleLoadData, &w->module, w->cubin);
	cuda_ok(cuModuleGetFunction, &w->vecadd, w->module, "vecadd");
	cuda_ok(cuModuleGetFunction, &w->count, w->module, "count");
	cuda_ok(cuModuleGetFunction, &w->scale, w->module, "scale");
}

void work_end(struct work *w)
{
	fdry_capture_end(w->cap);
	fdry_store_close(w->store);
	free(w->cubin);
}

void capture_start(struct work *w)
{
	cuda_ok(cuStreamBeginCapture_v2, w->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

CUgraph capture_stop(struct work *w)
{
	CUgraph graph;

	cuda_ok(cuStreamEndCapture, w->stream, &graph);
	return graph;
}

void launch_add(struct work *w, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c)
{
	int n = N;
	void *args[] = { &a, &b, &c, &n };

	cuda_ok(cuLaunchKernel, w->vecadd, (N + 63) / 64, 1, 1, 64, 1, 1, 0, w->stream, args, NULL);
}

void launch_step(struct work *w, CUdeviceptr x, uint64_t salt, uint32_t spins)
{
	void *args[] = { &x, &salt, &spins };
	CUfunction step;

	cuda_ok(cuModuleGetFunction, &step, w->module, "step");
	cuda_ok(cuLaunchKernel, step, 1, 1, 1, 1, 1, 1, 0, w->stream, args, NULL);
}

uint64_t step_result(uint64_t x, uint64_t salt, uint32_t spins)
{
	uint32_t i;

	for (i = 0; i <= spins; i++)
		x = x * 6364136223846793005u + salt;
	return x;
}

void graph_add(struct work *w, uint64_t key)
{
	capture_start(w);
	launch_add(w, w->a, w->b, w->c);
	ok(fdry_capture_graph(w->cap, key, "add", capture_stop(w)));
}

struct fdry_tensor vector(const char *name, CUdeviceptr addr, uint32_t use, uint32_t flags)
{
	return (struct fdry_tensor){ .name = name, .addr = addr, .dtype = FDRY_F32, .use = use,
				     .flags = flags, .rank = 1, .shape = { N }, .stride = { 1 } };
}

void tensor_add(struct work *w, const char *name, CUdeviceptr addr, uint32_t use, uint32_t flags)
{
	struct fdry_tensor t = vector(name, addr, use, flags);

	ok(fdry_capture_tensor(w->cap, &t));
}

static void audit_compare(const struct fdry_manifest *m, const struct fdry_audit *made)
{
	ck_assert_uint_eq(m->n_audits * sizeof(*m->audits), made->entries.len);
	ck_assert_mem_eq(m->audits, made->entries.data, made->entries.len);
	ck_assert_uint_eq(m->n_audit_words * sizeof(*m->audit_words), made->words.len);
	if (made->words.len)
		ck_assert_mem_eq(m->audit_words, made->words.data, made->words.len);
}

void audit_check(struct fdry_store *store, const char *id)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_reader *reader;
	struct fdry_audit made;
	struct fdry_manifest m;
	struct fdry_oid oid;

	ok(fdry_reader_begin(store, &reader));
	ok(fdry_reader_resolve(reader, id, &oid));
	ok(fdry_reader_copy(reader, &oid, &bytes));
	ok(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	ok(fdry_audit_make(reader, &m, &made));
	fdry_reader_end(reader);
	audit_compare(&m, &made);
	fdry_audit_release(&made);
	fdry_buf_release(&bytes);
}

int work_seal(struct work *w, const char *ref)
{
	char id[FDRY_ID_SIZE];
	int err = fdry_capture_seal(w->cap, w->store, ref, id, NULL);

	if (!err)
		audit_check(w->store, id);
	return err;
}

/* Seal the usual image, "img": graphs 1 and 2 (c = a + b), inputs a and b (@b_flags), output c, a
 * fact.
 */
static void image_seal(uint32_t b_flags, char *id)
{
	struct work w;

	work_make(&w);
	graph_add(&w, 2);
	graph_add(&w, 1);
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, b_flags);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(fdry_capture_fact(w.cap, "model", "adder"));
	ok(fdry_capture_seal(w.cap, w.store, "img", id, NULL));
	work_end(&w);
}

void seal_plain(void *id)
{
	image_seal(0, id);
}

void seal_external(void *id)
{
	image_seal(FDRY_TENSOR_EXTERNAL, id);
}

struct fdry_store *load_store(void)
{
	static struct fdry_store *s;

	ok(setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	if (!s)
		ok(fdry_store_open(path, 0, &s));
	return s;
}

struct fdry_image *load_image(const char *ref, const struct fdry_load_opts *opts)
{
	struct fdry_image *img = NULL;

	ok(fdry_image_load(load_store(), ref, opts, &img));
	return img;
}

struct fdry_image *load_with(uint32_t flags)
{
	struct fdry_load_opts opts = { .sz = sizeof(opts), .flags = flags };

	return load_image("img", &opts);
}

void described_as(const char *text)
{
	char *all = NULL;

	ok(fdry_image_describe(load_store(), "img", &all));
	ck_assert_msg(strstr(all, text), "'%s' does not have '%s'", all, text);
	free(all);
}

void image_manifest_read(struct fdry_buf *bytes, struct fdry_manifest *m)
{
	struct fdry_reader *reader;
	struct fdry_oid id;

	ok(fdry_reader_begin(load_store(), &reader));
	ok(fdry_reader_resolve(reader, "img", &id));
	ok(fdry_reader_copy(reader, &id, bytes));
	fdry_reader_end(reader);
	ok(fdry_manifest_init((struct fdry_span){ bytes->data, bytes->len }, m));
}

void *image_manifest_at(const struct fdry_buf *bytes, const void *section)
{
	return bytes->data + ((const uint8_t *)section - bytes->data);
}

void image_manifest_store(struct fdry_buf *bytes, const struct fdry_manifest *m, const char *ref)
{
	struct fdry_writer *writer;
	struct fdry_oid id, *links;
	size_t n;

	ok(fdry_manifest_links(m, &links, &n));
	ok(fdry_writer_begin(load_store(), &writer));
	ok(fdry_writer_commit(writer, bytes->data, bytes->len, links, n, ref, &id, NULL));
	free(links);
	fdry_buf_release(bytes);
}

void image_check(struct fdry_image *img, uint64_t key, float a_salt, float b_salt)
{
	float v[N], c[N];
	int i;

	vector_fill(v, a_salt);
	memset(c, 0xFF, sizeof(c));
	ok(fdry_image_write(img, "a", v, BYTES, NULL));
	ok(fdry_image_write(img, "c", c, BYTES, NULL));
	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "c", c, BYTES, NULL));
	for (i = 0; i < N; i++)
		ck_assert_msg(c[i] == vector_value(i, a_salt) + vector_value(i, b_salt),
			      "c[%d] is %g", i, (double)c[i]);
}

void meddle(void *arg, int phase, uint64_t done, uint64_t total, double ms)
{
	const struct fdry_driver *drv = test_sim();
	struct meddle *m = arg;
	uint8_t byte = 0;

	(void)ms;
	if (phase != FDRY_PHASE_CONTENT || done != total || m->done)
		return;
	m->done = true;
	ck_assert_int_eq(drv->cuMemcpyDtoH_v2(&byte, m->addr, 1), CUDA_SUCCESS);
	byte ^= 0x10;
	ck_assert_int_eq(drv->cuMemcpyHtoD_v2(m->addr, &byte, 1), CUDA_SUCCESS);
}

void launch_into_c(struct fdry_image *img, uint64_t key, uint8_t c[BYTES])
{
	uint8_t none[BYTES];

	memset(none, 0xcc, BYTES);
	ok(fdry_image_write(img, "c", none, BYTES, NULL));
	ok(fdry_image_launch(img, key, NULL));
	ok(fdry_image_read(img, "c", c, BYTES, NULL));
}
