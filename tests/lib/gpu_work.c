// SPDX-License-Identifier: Apache-2.0
/* gpu_work.c - see gpu_work.h. */
#include "tests/lib/gpu_work.h"

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
			  ".visible .entry step(.param .u64 p, .param .u64 salt, .param .u32 n)\n"
			  "{\n\t.reg .b64 %p, %x, %s;\n\tld.param.u64 %p, [p];\n"
			  "\tld.param.u64 %s, [salt];\n\tcvta.to.global.u64 %p, %p;\n"
			  "\tld.volatile.global.u64 %x, [%p];\n"
			  "\tmad.lo.u64 %x, %x, 6364136223846793005, %s;\n"
			  "\tst.volatile.global.u64 [%p], %x;\n\tret;\n}\n";

static bool software;

void gpu_work_main(int argc, char **argv)
{
	const struct fdry_driver *drv;
	int status = 1;
	pid_t pid;

	software = argc > 1;
	if (software)
		setenv("FOUNDRY_DRIVER", argv[1], 1);
	/* In a process of its own, since a child cannot use a driver that its parent started. */
	pid = fork();
	if (!pid)
		_exit(fdry_driver_open(NULL, &drv) != 0);
	if (waitpid(pid, &status, 0) == pid && !status)
		return;
	printf("SKIP: no GPU\n");
	exit(77);
}

void gpu_work_begin(struct gpu_work *w)
{
	struct fdry_capture_opts opts = { .sz = sizeof(opts), .size = 1ull << 34 };
	struct fdry_tensor x = { .name = "x", .dtype = FDRY_U64, .use = FDRY_USE_STATE, .rank = 1,
				 .shape = { 64 }, .stride = { 1 } };
	void *code = NULL;
	CUmodule module;
	CUcontext ctx;
	size_t len;

	test_hook_open();
	ok(setenv("FOUNDRY_HOOK", test_built("foundry/hook/libcuda.so.1"), 1));
	ok(fdry_hook_install(NULL));
	cuda_ok(cuInit, 0);
	cuda_ok(cuDevicePrimaryCtxRetain, &ctx, 0);
	cuda_ok(cuCtxSetCurrent, ctx);
	ok(fdry_store_open(path, FDRY_STORE_CREATE, &w->store));
	ok(fdry_capture_begin(&opts, &w->cap));
	cuda_ok(cuStreamCreate, &w->stream, CU_STREAM_NON_BLOCKING);
	cuda_ok(cuMemAlloc_v2, &w->x, 512);
	cuda_ok(cuMemsetD8_v2, w->x, 0, 512);
	if (software)
		code = test_sim_cubin("kernels", &len);
	cuda_ok(cuModuleLoadData, &module, code ? code : (const void *)ptx);
	free(code);
	cuda_ok(cuModuleGetFunction, &w->step, module, "step");
	x.addr = w->x;
	ok(fdry_capture_tensor(w->cap, &x));
}

void gpu_work_end(struct gpu_work *w)
{
	cuda_ok(cuStreamDestroy_v2, w->stream);
	fdry_capture_end(w->cap);
	fdry_store_close(w->store);
}
