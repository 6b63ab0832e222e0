// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_launch.c - checks launches: arguments against the kernel's parameters, cooperative
 * launches against the device.
 *
 * The driver reads as many arguments as the kernel has parameters. If an argument is missing, it
 * reads an invalid pointer, and cannot detect that.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "run/kernel_cache.h"
#include "lib/telemetry.h"

#define ARGS_NEAR 64

/* --- arguments --- */

static int args_check(const struct fdry_kernels *k, const struct fdry_kernels_func *f,
		      const struct fdry_kernels_arg *args, size_t nargs)
{
	size_t i;

	if (f->nparams == FDRY_KERNEL_PARAMS_UNKNOWN)
		return fdry_driver_result(k->drv, FDRY_DRV_cuFuncGetParamInfo, FDRY_CUDA_MISSING);
	if (nargs != f->nparams)
		return fdry_fail(FDRY_E_INVAL,
				 "the kernel '%s' takes %u arguments and %zu were given; give one "
				 "for each parameter",
				 f->name, f->nparams, nargs);
	if (nargs && !args)
		return fdry_fail(FDRY_E_INVAL, "the arguments of the kernel '%s' are NULL",
				 f->name);
	for (i = 0; i < nargs; i++) {
		if (!args[i].data)
			return fdry_fail(FDRY_E_INVAL,
					 "argument %zu of the kernel '%s' is NULL; give the "
					 "address of its bytes",
					 i, f->name);
		if (args[i].size != f->params[i].size)
			return fdry_fail(
				FDRY_E_INVAL,
				"argument %zu of the kernel '%s' has %u bytes and %zu were given",
				i, f->name, f->params[i].size, args[i].size);
	}
	return 0;
}

/* --- cooperative --- */

/* The product of three sizes; UINT64_MAX if it overflows. */
static uint64_t product(const uint32_t d[3])
{
	uint64_t n = (uint64_t)(d[0] ? d[0] : 1) * (d[1] ? d[1] : 1);

	return __builtin_mul_overflow(n, d[2] ? d[2] : 1, &n) ? UINT64_MAX : n;
}

static int grid_check(const struct fdry_kernels *k, const struct fdry_kernels_func *f,
		      const struct fdry_kernels_launch_opts *o)
{
	uint64_t blocks = product(o->grid), threads = product(o->block);
	int per_sm = 0, sms = 0;
	int err = fdry_call(k->drv, cuDeviceGetAttribute, &sms,
			    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, k->dev);

	if (err)
		return err;
	if (blocks == UINT64_MAX)
		return fdry_fail(FDRY_E_INVAL,
				 "a grid of %u x %u x %u blocks is larger than any device allows",
				 o->grid[0], o->grid[1], o->grid[2]);
	if (threads > 1u << 16)
		return fdry_fail(FDRY_E_INVAL,
				 "a block of %llu threads is larger than any device allows",
				 (unsigned long long)threads);
	err = fdry_call(k->drv, cuOccupancyMaxActiveBlocksPerMultiprocessor, &per_sm, f->func,
			(int)threads, o->shared);
	if (err || blocks <= (uint64_t)per_sm * (uint64_t)sms)
		return err;
	return fdry_fail(FDRY_E_UNABLE,
			 "a cooperative launch of '%s' with %llu blocks of %llu threads: device %d "
			 "holds %d of them at once (%d on each of "
			 "%d SMs); use a smaller grid, and loop in the kernel",
			 f->name, (unsigned long long)blocks, (unsigned long long)threads,
			 (int)k->dev, per_sm * sms, per_sm, sms);
}

static int cooperative_check(const struct fdry_kernels *k, const struct fdry_kernels_func *f,
			     const struct fdry_kernels_launch_opts *o)
{
	int can = 0;
	int err = fdry_call(k->drv, cuDeviceGetAttribute, &can,
			    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, k->dev);

	if (err)
		return err;
	if (can)
		return grid_check(k, f, o);
	return fdry_fail(FDRY_E_UNABLE,
			 "device %d cannot launch '%s' cooperatively: compute capability %u.%u, "
			 "cooperative launch %d; launch without the flag, or use a device of 6.0 "
			 "or above",
			 (int)k->dev, f->name, k->cc / 10, k->cc % 10, can);
}

/* --- launching --- */

static int launch(const struct fdry_kernels *k, const struct fdry_kernels_func *f,
		  const struct fdry_kernels_launch_opts *o, void **params)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE };
	CUlaunchConfig c = {
		.gridDimX = o->grid[0] ? o->grid[0] : 1,
		.gridDimY = o->grid[1] ? o->grid[1] : 1,
		.gridDimZ = o->grid[2] ? o->grid[2] : 1,
		.blockDimX = o->block[0] ? o->block[0] : 1,
		.blockDimY = o->block[1] ? o->block[1] : 1,
		.blockDimZ = o->block[2] ? o->block[2] : 1,
		.sharedMemBytes = o->shared,
		.hStream = o->stream,
		.attrs = &attr,
	};

	attr.value.cooperative = 1;
	c.numAttrs = o->flags & FDRY_KERNELS_COOPERATIVE ? 1 : 0;
	if (c.numAttrs)
		return fdry_call(k->drv, cuLaunchKernelEx, &c, f->func, params, NULL);
	return fdry_call(k->drv, cuLaunchKernel, f->func, c.gridDimX, c.gridDimY, c.gridDimZ,
			 c.blockDimX, c.blockDimY, c.blockDimZ, c.sharedMemBytes, c.hStream, params,
			 NULL);
}

/* The limit never becomes lower, because another thread may be about to launch with it. */
static int shared_raise(struct fdry_kernels *k, struct fdry_kernels_func *f, uint32_t shared)
{
	int err = 0;

	pthread_mutex_lock(&k->lock);
	if (shared <= atomic_load(&f->shared))
		goto out_unlock;
	err = fdry_call(k->drv, cuFuncSetAttribute, f->func,
			CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
	if (!err)
		atomic_store(&f->shared, shared);
out_unlock:
	pthread_mutex_unlock(&k->lock);
	return err ? fdry_fail_at(err, "%u bytes of dynamic shared memory", shared) : 0;
}

static int launch_in_context(struct fdry_kernels *k, struct fdry_kernels_func *f,
			     const struct fdry_kernels_launch_opts *o, void **params)
{
	CUcontext now = NULL, popped;
	int err = fdry_call(k->drv, cuCtxGetCurrent, &now);

	if (err)
		return err;
	if (now != k->ctx)
		err = fdry_call(k->drv, cuCtxPushCurrent_v2, k->ctx);
	if (err)
		return err;
	if (o->shared > atomic_load(&f->shared)) {
		err = shared_raise(k, f, o->shared);
		if (err)
			goto out_pop;
	}
	if (o->flags & FDRY_KERNELS_COOPERATIVE) {
		err = cooperative_check(k, f, o);
		if (err)
			goto out_pop;
	}
	err = launch(k, f, o, params);
	if (err)
		goto out_pop;
	fdry_count(o->flags & FDRY_KERNELS_COOPERATIVE ? FDRY_METRIC_LAUNCHES_COOPERATIVE
						       : FDRY_METRIC_LAUNCHES_KERNEL,
		   1);
out_pop:
	if (now != k->ctx)
		(void)fdry_call_raw(k->drv, cuCtxPopCurrent_v2, &popped);
	return err;
}

static int launch_with(struct fdry_kernels *k, struct fdry_kernels_func *f,
		       const struct fdry_kernels_launch_opts *o,
		       const struct fdry_kernels_arg *args, size_t nargs)
{
	void *near[ARGS_NEAR], **params = near;
	size_t i;
	int err;

	if (nargs > ARGS_NEAR) {
		params = calloc(nargs, sizeof(*params));
		if (!params)
			return fdry_nomem();
	}
	for (i = 0; i < nargs; i++)
		params[i] = (void *)args[i].data;
	err = launch_in_context(k, f, o, params);
	if (params != near)
		free(params);
	return err;
}

int fdry_kernels_launch(struct fdry_kernels *k, CUfunction function,
			const struct fdry_kernels_launch_opts *opts,
			const struct fdry_kernels_arg *args, size_t nargs)
{
	struct fdry_kernels_launch_opts o;
	struct fdry_kernels_func *f;
	int err = fdry_kernels_check(k) ?: fdry_need(opts);

	if (err)
		return err;
	err = fdry_opts_take(opts, &o, sizeof(o));
	if (err)
		return err;
	if (o.flags & ~(uint32_t)FDRY_KERNELS_COOPERATIVE)
		return fdry_fail(FDRY_E_OPTS, "launch flags %#x are not known; use a newer library",
				 o.flags);
	f = fdry_kernels_func(k, function);
	if (!f)
		return fdry_fail(FDRY_E_NOKEY, "the function does not belong to this cache, or "
					       "the cache was cleared since; request it again");
	err = args_check(k, f, args, nargs);
	return err ? err : launch_with(k, f, &o, args, nargs);
}
