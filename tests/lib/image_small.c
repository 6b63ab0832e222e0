// SPDX-License-Identifier: Apache-2.0
/* image_small.c - see image_small.h. */
#include "tests/lib/image_small.h"

#include <fcntl.h>

void image_pack_put(struct fdry_store *s)
{
	char name[340];
	const char *const img = "img";
	int fd;

	snprintf(name, sizeof(name), "%s/packs", path);
	ck_assert(!mkdir(name, 0700));
	snprintf(name, sizeof(name), "%s/packs/one", path);
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ok(fdry_store_export(s, &img, 1, fd, NULL, NULL));
	ck_assert(!close(fd));
}

void image_small_seal(const char *ref, bool with_pack)
{
	struct fdry_tensor t = { .name = "small", .dtype = FDRY_U8, .use = FDRY_USE_CONST,
				 .rank = 1, .shape = { SMALL }, .stride = { 1 } };
	uint8_t bytes[SMALL];
	CUdeviceptr small;
	struct work w;

	work_make(&w);
	graph_add(&w, 1);
	cuda_ok(cuMemAlloc_v2, &small, 3u << 20);
	cuda_ok(cuMemsetD8_v2, small, 0, 3u << 20);
	noise(1, bytes, sizeof(bytes));
	cuda_ok(cuMemcpyHtoD_v2, small, bytes, sizeof(bytes));
	t.addr = small;
	ok(fdry_capture_tensor(w.cap, &t));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, ref));
	if (with_pack)
		image_pack_put(w.store);
	work_end(&w);
}
