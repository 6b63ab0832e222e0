// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_compile.c - compiles PTX and source to cubins.
 *
 * The driver's linker compiles PTX to the cubin that the driver would have loaded, as bytes that
 * can be kept. The driver's own cache of modules (CUDA_CACHE_PATH) is neither used nor changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/kernel_cache.h"
#include "lib/telemetry.h"

#define LOG_SIZE (64u << 10)

/* --- PTX --- */

/* A link in progress, with the options that must stay until it ends. */
struct link {
	CUlinkState state;
	CUjit_option options[FDRY_KERNEL_OPTIONS_MAX + 3];
	void *values[FDRY_KERNEL_OPTIONS_MAX + 3];
	unsigned int count;
	char *log;
};

static void option_add(struct link *l, CUjit_option option, uintptr_t value)
{
	l->options[l->count] = option;
	l->values[l->count++] = (void *)value;
}

static void options_add(struct link *l, const struct fdry_kernels_unit *u)
{
	CUjit_option option;
	uintptr_t value;
	size_t i;

	option_add(l, CU_JIT_ERROR_LOG_BUFFER, (uintptr_t)l->log);
	option_add(l, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_SIZE - 1);
	for (i = 0; !u->source && i < u->src.noptions; i++)
		if (fdry_kernels_jit_option(u->src.options[i], &option, &value))
			option_add(l, option, value);
}

/* Copy a text with a terminator: parsers need one, even if they know the length. */
static int text_copy(struct fdry_span text, struct fdry_buf *ret)
{
	int err = fdry_buf_put(ret, text.data, text.len);

	if (err)
		return err;
	if (!text.len || text.data[text.len - 1])
		return fdry_buf_put(ret, "", 1);
	return 0;
}

/* Whether the driver's result blames the text, and not the driver itself. */
static bool at_fault(CUresult res, const char *log)
{
	return res == CUDA_ERROR_INVALID_PTX || res == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
	       res == CUDA_ERROR_INVALID_SOURCE || res == CUDA_ERROR_NO_BINARY_FOR_GPU ||
	       (res != CUDA_SUCCESS && res != CUDA_ERROR_OUT_OF_MEMORY && *log);
}

static int link_result(struct fdry_kernels *k, const struct fdry_kernels_unit *u, struct link *l,
		       enum fdry_driver_fn fn, CUresult res)
{
	if (at_fault(res, l->log))
		return fdry_kernels_refused(k, u, FDRY_E_COMPILE, "the driver's compiler", l->log);
	return fdry_driver_result(k->drv, fn, res);
}

static int link_run(struct fdry_kernels *k, const struct fdry_kernels_unit *u, struct link *l,
		    const struct fdry_buf *text, struct fdry_buf *ret)
{
	const struct fdry_driver *drv = k->drv;
	void *cubin = NULL;
	size_t len = 0;
	CUresult res = fdry_call_raw(drv, cuLinkAddData_v2, l->state, CU_JIT_INPUT_PTX, text->data,
				     text->len, "ptx", 0, NULL, NULL);
	int err = link_result(k, u, l, FDRY_DRV_cuLinkAddData_v2, res);

	if (err)
		return err;
	res = fdry_call_raw(drv, cuLinkComplete, l->state, &cubin, &len);
	err = link_result(k, u, l, FDRY_DRV_cuLinkComplete, res);
	if (err)
		return err;
	if (!cubin || !len)
		return fdry_fail(FDRY_E_DRIVER,
				 "%s: the driver's linker returned neither code nor an error",
				 u->title);
	return fdry_buf_put(ret, cubin, len);
}

static int ptx_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_span ptx, struct fdry_buf *ret)
{
	struct link l = { .log = calloc(1, LOG_SIZE) };
	struct fdry_buf text = { 0 };
	double begin = fdry_now_ms();
	int err = l.log ? text_copy(ptx, &text) : fdry_nomem();

	if (err)
		goto out_free;
	options_add(&l, u);
	err = fdry_call(k->drv, cuLinkCreate_v2, l.count, l.options, l.values, &l.state);
	if (err)
		goto out_free;
	err = link_run(k, u, &l, &text, ret);
	(void)fdry_call_raw(k->drv, cuLinkDestroy, l.state);
	fdry_count(FDRY_METRIC_COMPILES_DRIVER, 1);
	fdry_kernels_add(k, ptx_compilations, 1);
	fdry_kernels_trace(k, u->title, "ptx to cubin", fdry_now_ms() - begin, ret->len);
out_free:
	fdry_buf_release(&text);
	free(l.log);
	return err;
}

/* --- source --- */

static int source_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			  struct fdry_buf *ret)
{
	struct fdry_buf out = { 0 };
	double begin = fdry_now_ms();
	bool ptx = false;
	int err = fdry_nvrtc_compile(k, u, &out, &ptx);

	fdry_count(FDRY_METRIC_COMPILES_NVRTC, 1);
	fdry_kernels_add(k, source_compilations, 1);
	fdry_kernels_trace(k, u->title, ptx ? "source to ptx" : "source to cubin",
			   fdry_now_ms() - begin, out.len);
	if (err)
		goto out_release;
	if (ptx)
		err = ptx_compile(k, u, (struct fdry_span){ out.data, out.len }, ret);
	else
		err = fdry_buf_put(ret, out.data, out.len);
out_release:
	fdry_buf_release(&out);
	return err;
}

int fdry_kernels_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			 struct fdry_buf *ret)
{
	double begin = fdry_now_ms(), took;
	int err = u->source ? source_compile(k, u, ret) : ptx_compile(k, u, u->code.bytes, ret);

	took = fdry_now_ms() - begin;
	fdry_count_ms(FDRY_METRIC_COMPILE_NS, took);
	fdry_kernels_add(k, compile_ms, took);
	return err;
}
