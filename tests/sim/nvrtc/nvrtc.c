// SPDX-License-Identifier: Apache-2.0
/*
 * nvrtc.c - a stand-in for NVRTC, for tests with the software driver. It has NVRTC's interface and
 * no compiler. Source names a file of tests/sim/ by "#pragma object NAME", and the result is the
 * text or the object that the build made of that file. Every line with the words "syntax error"
 * gives an error. The environment, read at each call: FAKE_NVRTC_ARCHS ("75 80 90 100" unless set),
 * FAKE_NVRTC_MINOR (0), and FAKE_NVRTC_LOG, a file that gets a line for each compilation, so that
 * tests can count them over several processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };

typedef struct program {
	char *src;
	char name[64];  /* of the object */
	char arch[32];
	char log[65536];
	char *ptx, *cubin;
	size_t ptx_len, cubin_len; /* the text's with its terminator */
} *nvrtcProgram;

SHOWN int nvrtcVersion(int *major, int *minor);
SHOWN const char *nvrtcGetErrorString(int res);
SHOWN int nvrtcGetNumSupportedArchs(int *count);
SHOWN int nvrtcGetSupportedArchs(int *archs);
SHOWN int nvrtcCreateProgram(nvrtcProgram *ret, const char *src, const char *name, int n,
			     const char *const *headers, const char *const *names);
SHOWN int nvrtcDestroyProgram(nvrtcProgram *prog);
SHOWN int nvrtcCompileProgram(nvrtcProgram prog, int n, const char *const *options);
SHOWN int nvrtcGetPTXSize(nvrtcProgram prog, size_t *size);
SHOWN int nvrtcGetPTX(nvrtcProgram prog, char *ptx);
SHOWN int nvrtcGetCUBINSize(nvrtcProgram prog, size_t *size);
SHOWN int nvrtcGetCUBIN(nvrtcProgram prog, char *cubin);
SHOWN int nvrtcGetProgramLogSize(nvrtcProgram prog, size_t *size);
SHOWN int nvrtcGetProgramLog(nvrtcProgram prog, char *log);

static const char *env(const char *name, const char *otherwise)
{
	const char *s = getenv(name);

	return s && *s ? s : otherwise;
}

int nvrtcVersion(int *major, int *minor)
{
	*major = 13;
	*minor = atoi(env("FAKE_NVRTC_MINOR", "0"));
	return SUCCESS;
}

const char *nvrtcGetErrorString(int res)
{
	return res == INVALID_OPTION ? "FAKE_ERROR_INVALID_OPTION"
	       : res == COMPILATION  ? "FAKE_ERROR_COMPILATION"
				     : "FAKE_ERROR";
}

static int archs_read(int *archs)
{
	const char *s = env("FAKE_NVRTC_ARCHS", "75 80 90 100");
	int n = 0, arch, used;

	for (; sscanf(s, "%d%n", &arch, &used) == 1; s += used) {
		if (archs)
			archs[n] = arch;
		n++;
	}
	return n;
}

int nvrtcGetNumSupportedArchs(int *count)
{
	*count = archs_read(NULL);
	return SUCCESS;
}

int nvrtcGetSupportedArchs(int *archs)
{
	archs_read(archs);
	return SUCCESS;
}

int nvrtcCreateProgram(nvrtcProgram *ret, const char *src, const char *name, int n,
		       const char *const *headers, const char *const *names)
{
	nvrtcProgram p = calloc(1, sizeof(*p));

	(void)name, (void)headers, (void)names;
	if (!p || n)
		return n ? INVALID_INPUT : OUT_OF_MEMORY;
	p->src = strdup(src);
	*ret = p;
	return SUCCESS;
}

int nvrtcDestroyProgram(nvrtcProgram *prog)
{
	free((*prog)->src);
	free((*prog)->ptx);
	free((*prog)->cubin);
	free(*prog);
	*prog = NULL;
	return SUCCESS;
}

static char *built_read(const char *name, const char *ext, size_t *len)
{
	char path[4096];
	char *data = NULL;
	long size;
	FILE *f;

	snprintf(path, sizeof(path), "%s/sim/%s.%s", env("BUILD", "build"), name, ext);
	f = fopen(path, "rb");
	if (!f)
		return NULL;
	if (!fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0 && !fseek(f, 0, SEEK_SET)) {
		data = calloc(1, (size_t)size + 1);
		if (data && fread(data, 1, (size_t)size, f) == (size_t)size)
			*len = (size_t)size;
	}
	fclose(f);
	return data;
}

static void errors_log(nvrtcProgram p)
{
	const char *at = p->src;
	size_t n = 0;
	int line = 1;

	for (; *at && n + 80 < sizeof(p->log); at++) {
		line += *at == '\n';
		if (!strncmp(at, "syntax error", 12))
			n += (size_t)snprintf(p->log + n, sizeof(p->log) - n,
					      "source(%d): error: a syntax error stands here\n",
					      line);
	}
}

static int options_read(nvrtcProgram p, int n, const char *const *options)
{
	int i;

	for (i = 0; i < n; i++) {
		if (!strncmp(options[i], "--gpu-architecture=", 19))
			snprintf(p->arch, sizeof(p->arch), "%s", options[i] + 19);
		else if (strncmp(options[i], "-D", 2) && strncmp(options[i], "-I", 2) &&
			 strcmp(options[i], "--use_fast_math")) {
			snprintf(p->log, sizeof(p->log),
				 "nvrtc: error: unrecognized option %.60s found\n", options[i]);
			return INVALID_OPTION;
		}
	}
	return *p->arch ? SUCCESS : INVALID_OPTION;
}

static void count(void)
{
	const char *path = getenv("FAKE_NVRTC_LOG");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (!f)
		return;
	fputs("compiled\n", f);
	fclose(f);
}

int nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options)
{
	const char *pragma = strstr(p->src, "#pragma object ");
	int res = options_read(p, n, options);

	count();
	if (res)
		return res;
	errors_log(p);
	if (!*p->log && (!pragma || sscanf(pragma, "#pragma object %63s", p->name) != 1))
		snprintf(p->log, sizeof(p->log), "source(1): error: it names no object\n");
	if (*p->log)
		return COMPILATION;
	p->ptx = built_read(p->name, "ptx", &p->ptx_len);
	p->ptx_len++;
	if (!strncmp(p->arch, "sm_", 3))
		p->cubin = built_read(p->name, "cubin", &p->cubin_len);
	return p->ptx ? SUCCESS : INVALID_INPUT;
}

int nvrtcGetPTXSize(nvrtcProgram p, size_t *size)
{
	*size = p->ptx_len;
	return SUCCESS;
}

int nvrtcGetPTX(nvrtcProgram p, char *ptx)
{
	memcpy(ptx, p->ptx, p->ptx_len);
	return SUCCESS;
}

int nvrtcGetCUBINSize(nvrtcProgram p, size_t *size)
{
	*size = p->cubin_len;
	return p->cubin ? SUCCESS : INVALID_INPUT;
}

int nvrtcGetCUBIN(nvrtcProgram p, char *cubin)
{
	memcpy(cubin, p->cubin, p->cubin_len);
	return SUCCESS;
}

int nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size)
{
	*size = strlen(p->log) + 1;
	return SUCCESS;
}

int nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
	memcpy(log, p->log, strlen(p->log) + 1);
	return SUCCESS;
}
