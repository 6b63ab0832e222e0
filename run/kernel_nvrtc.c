// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_nvrtc.c - opens NVRTC at run time, if it is installed, and compiles with it; nothing links
 * with it.
 *
 * Its interface is stable C; results other than 0 are errors with names. It stays mapped after it
 * was opened, because it keeps threads and caches of its own.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/kernel_cache.h"
#include "lib/config.h"

typedef struct nvrtc_program *nvrtc_program;

/* X(name, parameters, whether every NVRTC must have it) */
#define NVRTC_FNS(X) \
	X(nvrtcVersion, (int *major, int *minor), true) \
	X(nvrtcCreateProgram, \
	  (nvrtc_program * prog, const char *src, const char *name, int n, \
	   const char *const *headers, const char *const *names), \
	  true) \
	X(nvrtcDestroyProgram, (nvrtc_program * prog), true) \
	X(nvrtcCompileProgram, (nvrtc_program prog, int n, const char *const *options), true) \
	X(nvrtcGetPTXSize, (nvrtc_program prog, size_t * size), true) \
	X(nvrtcGetPTX, (nvrtc_program prog, char *ptx), true) \
	X(nvrtcGetCUBINSize, (nvrtc_program prog, size_t * size), false) \
	X(nvrtcGetCUBIN, (nvrtc_program prog, char *cubin), false) \
	X(nvrtcGetProgramLogSize, (nvrtc_program prog, size_t * size), true) \
	X(nvrtcGetProgramLog, (nvrtc_program prog, char *log), true) \
	X(nvrtcGetNumSupportedArchs, (int *count), false) \
	X(nvrtcGetSupportedArchs, (int *archs), false)

#define NVRTC_INVALID_OPTION 5
#define NVRTC_COMPILE_FAILED 6

struct fdry_nvrtc {
	void *handle;
	int major, minor;
	int *archs;      /* ascending, as NVRTC lists them */
	int narchs;
	const char *(*error_string)(int res);
#define X(name, params, must) int (*name) params;
	NVRTC_FNS(X)
#undef X
};

static const char *const places[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" };

static int symbols_find(struct fdry_nvrtc *n, const char *path)
{
#define X(symbol, params, must) \
	*(void **)&n->symbol = dlsym(n->handle, #symbol); \
	if (must && !n->symbol) \
		return fdry_fail(FDRY_E_NONVRTC, "%s cannot be used as NVRTC: it lacks " #symbol, \
				 path);
	NVRTC_FNS(X)
#undef X
	*(void **)&n->error_string = dlsym(n->handle, "nvrtcGetErrorString");
	return n->error_string
		       ? 0
		       : fdry_fail(FDRY_E_NONVRTC,
				   "%s cannot be used as NVRTC: it lacks nvrtcGetErrorString",
				   path);
}

static int nvrtc_result(const struct fdry_nvrtc *n, const char *fn, int res)
{
	const char *text = res ? n->error_string(res) : NULL;

	if (!res)
		return 0;
	return fdry_fail(FDRY_E_DRIVER, "%s failed with %s (%d); NVRTC %d.%d", fn,
			 text ? text : "an unknown error", res, n->major, n->minor);
}

/* NVRTC before CUDA 11.2 cannot list its targets; the list is empty then. */
static int archs_read(struct fdry_nvrtc *n)
{
	int count = 0;
	int err;

	if (!n->nvrtcGetNumSupportedArchs || !n->nvrtcGetSupportedArchs)
		return 0;
	err = nvrtc_result(n, "nvrtcGetNumSupportedArchs", n->nvrtcGetNumSupportedArchs(&count));
	if (err || count <= 0 || count > 1024)
		return err;
	n->archs = calloc((size_t)count, sizeof(*n->archs));
	if (!n->archs)
		return fdry_nomem();
	n->narchs = count;
	return nvrtc_result(n, "nvrtcGetSupportedArchs", n->nvrtcGetSupportedArchs(n->archs));
}

void fdry_nvrtc_free(struct fdry_nvrtc *n)
{
	if (!n)
		return;
	free(n->archs);
	free(n);
}

/* Open the library that the options or FOUNDRY_NVRTC name, else the first one that is installed. */
static void *handle_open(const struct fdry_kernels *k, const char **path)
{
	void *handle = NULL;
	size_t i;

	*path = k->nvrtc_path;
	if (!*path && fdry_config_path(FDRY_CONFIG_NVRTC, path))
		*path = NULL;
	if (*path)
		return dlopen(*path, RTLD_NOW | RTLD_LOCAL);
	for (i = 0; i < sizeof(places) / sizeof(places[0]) && !handle; i++) {
		*path = places[i];
		handle = dlopen(*path, RTLD_NOW | RTLD_LOCAL);
	}
	return handle;
}

static int nvrtc_open(const struct fdry_kernels *k, struct fdry_nvrtc **ret)
{
	struct fdry_nvrtc *n = calloc(1, sizeof(*n));
	const char *path;
	int err;

	if (!n)
		return fdry_nomem();
	n->handle = handle_open(k, &path);
	if (!n->handle) {
		err = fdry_fail(FDRY_E_NONVRTC,
				"NVRTC, which compiles source, cannot be opened: %s; install it "
				"(the CUDA toolkit contains it), set FOUNDRY_NVRTC to its path, or "
				"pass PTX",
				dlerror());
		goto out_free;
	}
	err = symbols_find(n, path);
	if (err)
		goto out_free;
	err = nvrtc_result(n, "nvrtcVersion", n->nvrtcVersion(&n->major, &n->minor));
	if (err)
		goto out_free;
	err = archs_read(n);
	if (err)
		goto out_free;
	*ret = n;
	return 0;
out_free:
	fdry_nvrtc_free(n);
	return err;
}

int fdry_nvrtc_need(struct fdry_kernels *k, const struct fdry_nvrtc **ret)
{
	double begin = fdry_now_ms();
	int err = 0;

	pthread_mutex_lock(&k->setup_lock);
	if (!k->nvrtc) {
		err = nvrtc_open(k, &k->nvrtc);
		fdry_kernels_trace(k, "NVRTC", "opened", fdry_now_ms() - begin, 0);
	}
	pthread_mutex_unlock(&k->setup_lock);
	if (err)
		return err;
	*ret = k->nvrtc;
	return 0;
}

void fdry_nvrtc_version(const struct fdry_nvrtc *n, int *major, int *minor)
{
	*major = n->major;
	*minor = n->minor;
}

/* --- targets --- */

int fdry_nvrtc_target(const struct fdry_nvrtc *n, uint32_t cc, char target[24])
{
	int best = 0, i;

	for (i = 0; i < n->narchs; i++)
		if (n->archs[i] <= (int)cc && n->archs[i] > best)
			best = n->archs[i];
	if (n->narchs && !best)
		return fdry_fail(FDRY_E_UNABLE,
				 "NVRTC %d.%d compiles for sm_%d and above, and the device is "
				 "sm_%u; install an older NVRTC",
				 n->major, n->minor, n->archs[0], cc);
	if (!best || (best == (int)cc && n->nvrtcGetCUBIN && n->nvrtcGetCUBINSize))
		snprintf(target, 24, n->nvrtcGetCUBIN ? "sm_%u" : "compute_%u", cc);
	else
		snprintf(target, 24, "compute_%d", best);
	return 0;
}

/* --- compiling --- */

static int log_refused(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       enum fdry_errcode code, nvrtc_program prog)
{
	const struct fdry_nvrtc *n = k->nvrtc;
	size_t len = 0;
	char *log = NULL;
	int err;

	if (!n->nvrtcGetProgramLogSize(prog, &len) && len && len < (64u << 20))
		log = calloc(1, len + 1);
	if (log && n->nvrtcGetProgramLog(prog, log))
		*log = 0;
	err = fdry_kernels_refused(k, u, code, "NVRTC", log ? log : "");
	free(log);
	return err;
}

static int output_read(const struct fdry_nvrtc *n, nvrtc_program prog, bool ptx,
		       struct fdry_buf *ret)
{
	size_t len = 0, was = ret->len;
	void *to = NULL;
	int err = nvrtc_result(n, ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize",
			       ptx ? n->nvrtcGetPTXSize(prog, &len)
				   : n->nvrtcGetCUBINSize(prog, &len));

	if (err)
		return err;
	if (!len || len > FDRY_FATBIN_CODE_MAX)
		return fdry_fail(FDRY_E_DRIVER, "NVRTC %d.%d returned code of %zu bytes", n->major,
				 n->minor, len);
	err = fdry_buf_grow(ret, len, &to);
	if (err)
		return err;
	err = nvrtc_result(n, ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN",
			   ptx ? n->nvrtcGetPTX(prog, to) : n->nvrtcGetCUBIN(prog, to));
	if (err)
		ret->len = was;
	return err;
}

static int program_run(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       nvrtc_program prog, struct fdry_buf *ret, bool ptx)
{
	const char *options[FDRY_KERNEL_OPTIONS_MAX + 1];
	const struct fdry_nvrtc *n = k->nvrtc;
	char arch[64];
	size_t i;
	int res;

	snprintf(arch, sizeof(arch), "--gpu-architecture=%s", u->target);
	for (i = 0; i < u->src.noptions; i++)
		options[i] = u->src.options[i];
	options[i] = arch;
	res = n->nvrtcCompileProgram(prog, (int)i + 1, options);
	if (res == NVRTC_COMPILE_FAILED || res == NVRTC_INVALID_OPTION)
		return log_refused(
			k, u, res == NVRTC_INVALID_OPTION ? FDRY_E_INVAL : FDRY_E_COMPILE, prog);
	if (res)
		return nvrtc_result(n, "nvrtcCompileProgram", res);
	return output_read(n, prog, ptx, ret);
}

int fdry_nvrtc_compile(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_buf *ret, bool *ptx)
{
	struct fdry_buf text = { 0 };
	nvrtc_program prog = NULL;
	bool as_ptx = !strncmp(u->target, "compute_", 8) || !k->nvrtc->nvrtcGetCUBIN ||
		      !k->nvrtc->nvrtcGetCUBINSize;
	int err = fdry_buf_put(&text, u->code.bytes.data, u->code.bytes.len) ?:
		  fdry_buf_put(&text, "", 1);

	if (err)
		goto out_release;
	err = nvrtc_result(k->nvrtc, "nvrtcCreateProgram",
			   k->nvrtc->nvrtcCreateProgram(&prog, (const char *)text.data, u->src.name,
							0, NULL, NULL));
	if (err)
		goto out_release;
	err = program_run(k, u, prog, ret, as_ptx);
	(void)k->nvrtc->nvrtcDestroyProgram(&prog);
	if (!err)
		*ptx = as_ptx;
out_release:
	fdry_buf_release(&text);
	return err;
}
