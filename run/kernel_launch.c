// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_launch.c - check launches: arguments against the kernel's parameters, cooperative launches
 * against the device.
 *
 * The driver reads as many arguments as the kernel has parameters. With one argument too few it
 * reads an invalid pointer, and cannot notice that.
 */
#include <stdlib.h>

#include "lib/opts.h"
#include "run/kernel_cache.h"
#include "lib/telemetry.h"

#define ARGS_NEAR 64

/* --- parameters --- */

static int param_add(struct fdry_buf *params, size_t offset, size_t size)
{
	struct fdry_param p = { (uint16_t)offset, (uint16_t)size };

	if (offset > FDRY_KERNEL_PARAM_BYTES_MAX || size > FDRY_KERNEL_PARAM_BYTES_MAX)
		return fdry_fail(FDRY_E_BADCODE,
				 "the driver says that a parameter of %zu bytes lies at %zu; at "
				 "most %u are known",
				 size, offset, FDRY_KERNEL_PARAM_BYTES_MAX);
	return fdry_buf_put(params, &p, sizeof(p));
}

/* The list ends with CUDA_ERROR_INVALID_VALUE. */
static int params_read(const struct fdry_kernels *k, struct fdry_kernels_func *f)
{
	struct fdry_buf params = { 0 };
	size_t offset, size;
	uint32_t i;
	CUresult res = CUDA_SUCCESS;
	int err = 0;

	for (i = 0; i <= FDRY_KERNEL_PARAMS_MAX && !err; i++) {
		res = fdry_call_raw(k->drv, cuFuncGetParamInfo, f->func, i, &offset, &size);
		if (res)
			break;
		err = param_add(&params, offset, size);
	}
	if (!err && !res)
		err = fdry_fail(FDRY_E_UNABLE,
				"the kernel '%s' has more than %u parameters, which this library "
				"does not launch; put them "
				"into a struct",
				f->name, FDRY_KERNEL_PARAMS_MAX);
	if (!err && res != CUDA_SUCCESS && res != CUDA_ERROR_INVALID_VALUE &&
	    res != FDRY_CUDA_MISSING)
		err = fdry_driver_result(k->drv, FDRY_DRV_cuFuncGetParamInfo, res);
	if (err) {
		fdry_buf_release(&params);
		return err;
	}
	f->nparams = res == FDRY_CUDA_MISSING ? FDRY_KERNEL_PARAMS_UNKNOWN : i;
	f->params = (struct fdry_param *)params.data;
	return 0;
}

int fdry_kernels_func_read(const struct fdry_kernels *k, struct fdry_kernels_func *f)
{
	int shared = 0;
	int err = fdry_call(k->drv, cuFuncGetAttribute, &shared,
			    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f->func);

	if (err)
		return err;
	atomic_init(&f->shared, shared > 0 ? (uint32_t)shared : 0);
	return params_read(k, f);
}

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

/* UINT64_MAX: more than that. */
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

	if (!err && blocks == UINT64_MAX)
		err = fdry_fail(FDRY_E_INVAL,
				"a grid of %u x %u x %u blocks is more than any device takes",
				o->grid[0], o->grid[1], o->grid[2]);
	if (!err && threads > 1u << 16)
		err = fdry_fail(FDRY_E_INVAL, "a block of %llu threads is more than any device has",
				(unsigned long long)threads);
	if (!err)
		err = fdry_call(k->drv, cuOccupancyMaxActiveBlocksPerMultiprocessor, &per_sm,
				f->func, (int)threads, o->shared);
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
			 "a cooperative launch of '%s' was asked for, and device %d cannot: "
			 "compute capability %u.%u, cooperative launch %d; "
			 "launch without it, or use a device of 6.0 or above",
			 f->name, (int)k->dev, k->cc / 10, k->cc % 10, can);
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

/* The limit is only raised: another thread may be about to launch with the present one. */
static int shared_raise(struct fdry_kernels *k, struct fdry_kernels_func *f, uint32_t shared)
{
	int err = 0;

	pthread_mutex_lock(&k->lock);
	if (shared > atomic_load(&f->shared)) {
		err = fdry_call(k->drv, cuFuncSetAttribute, f->func,
				CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
		if (!err)
			atomic_store(&f->shared, shared);
	}
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
	err = o->shared > atomic_load(&f->shared) ? shared_raise(k, f, o->shared) : 0;
	if (!err && o->flags & FDRY_KERNELS_COOPERATIVE)
		err = cooperative_check(k, f, o);
	if (!err)
		err = launch(k, f, o, params);
	if (!err)
		fdry_count(o->flags & FDRY_KERNELS_COOPERATIVE ? FDRY_METRIC_LAUNCHES_COOPERATIVE
							       : FDRY_METRIC_LAUNCHES_KERNEL,
			   1);
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
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	err = fdry_need(opts);
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
		return fdry_fail(FDRY_E_NOKEY, "the function is not one that this cache gave, or "
					       "it was cleared since; get it anew");
	err = args_check(k, f, args, nargs);
	return err ? err : launch_with(k, f, &o, args, nargs);
}
