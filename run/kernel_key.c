// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_key.c - classifies a source, checks that this device can run it, and makes its key.
 *
 * The key is a digest of facts, made like the identity of an image (image/identity.h), because a
 * store finds compiled code by it: see Documentation/design/kernels.rst. Two sources with one key
 * must compile to the same code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/opts.h"
#include "image/compiled.h"
#include "run/kernel_cache.h"
#include "graph/module.h"

/* --- options --- */

static const struct {
	const char *text;
	CUjit_option option;
	uintptr_t value;
	bool number; /* a number follows the text */
} jit_options[] = {
	{ "-O0", CU_JIT_OPTIMIZATION_LEVEL, 0, false },
	{ "-O1", CU_JIT_OPTIMIZATION_LEVEL, 1, false },
	{ "-O2", CU_JIT_OPTIMIZATION_LEVEL, 2, false },
	{ "-O3", CU_JIT_OPTIMIZATION_LEVEL, 3, false },
	{ "-O4", CU_JIT_OPTIMIZATION_LEVEL, 4, false },
	{ "--maxrregcount=", CU_JIT_MAX_REGISTERS, 0, true },
	{ "--generate-line-info", CU_JIT_GENERATE_LINE_INFO, 1, false },
	{ "--device-debug", CU_JIT_GENERATE_DEBUG_INFO, 1, false },
};

/* A number from 1 to 255 that fills the text. */
static bool registers_parse(const char *text, uintptr_t *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || !n || n > 255)
		return false;
	*ret = n;
	return true;
}

bool fdry_kernels_jit_option(const char *option, CUjit_option *ret, uintptr_t *value)
{
	size_t i, len;

	for (i = 0; i < sizeof(jit_options) / sizeof(jit_options[0]); i++) {
		len = strlen(jit_options[i].text);
		if (jit_options[i].number ? strncmp(option, jit_options[i].text, len)
					  : strcmp(option, jit_options[i].text))
			continue;
		*ret = jit_options[i].option;
		*value = jit_options[i].value;
		return !jit_options[i].number || registers_parse(option + len, value);
	}
	return false;
}

static int option_check(const struct fdry_kernels_unit *u, const char *option)
{
	CUjit_option jit;
	uintptr_t value;

	if (!option || !*option || strchr(option, '\n'))
		return fdry_fail(
			FDRY_E_INVAL,
			"%s: an option of the compiler is NULL, empty or has several lines",
			u->title);
	if (u->source && (strstr(option, "gpu-architecture") || !strncmp(option, "-arch", 5)))
		return fdry_fail(
			FDRY_E_INVAL,
			"%s: the option '%s' names a target; set the member target instead",
			u->title, option);
	if (!u->source && !fdry_kernels_jit_option(option, &jit, &value))
		return fdry_fail(FDRY_E_INVAL,
				 "%s: PTX has no option '%s'; there are -O0 to -O4, "
				 "--maxrregcount=1 to 255, "
				 "--generate-line-info and --device-debug",
				 u->title, option);
	return 0;
}

static int options_read(struct fdry_kernels_unit *u)
{
	size_t i, n = u->src.noptions;
	int err;

	if (n > FDRY_KERNEL_OPTIONS_MAX)
		return fdry_fail(FDRY_E_LIMIT, "%s has %zu options; %u are allowed", u->title, n,
				 FDRY_KERNEL_OPTIONS_MAX);
	if (n && !u->src.options)
		return fdry_fail(FDRY_E_INVAL, "%s: noptions is %zu and options is NULL", u->title,
				 n);
	if (n && !u->compiled)
		return fdry_fail(FDRY_E_INVAL,
				 "%s: a cubin is not compiled, so it cannot have options",
				 u->title);
	for (i = 0; i < n; i++) {
		err = option_check(u, u->src.options[i]);
		if (err)
			return err;
		err = fdry_buf_printf(&u->options, "%s%s", i ? "\n" : "", u->src.options[i]);
		if (err)
			return err;
	}
	err = fdry_buf_put(&u->options, "", 1);
	if (err)
		return err;
	if (u->options.len > FDRY_FACT_MAX)
		return fdry_fail(FDRY_E_LIMIT, "%s: its options have %zu bytes; %u are allowed",
				 u->title, u->options.len, FDRY_FACT_MAX);
	return 0;
}

/* --- kinds --- */

/* The length of a splice, which joins two lines: a backslash, perhaps blanks, and a newline. 0 if
 * @text does not begin with one. */
static size_t splice_len(const uint8_t *text, size_t len)
{
	size_t i = 1;

	if (!len || *text != '\\')
		return 0;
	while (i < len && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r'))
		i++;
	return i < len && text[i] == '\n' ? i + 1 : 0;
}

static bool word_at(const uint8_t *text, size_t len, const char *word)
{
	size_t n;

	while (*word) {
		n = splice_len(text, len);
		if (!n && (!len || *text != (uint8_t)*word++))
			return false;
		n = n ? n : 1;
		text += n;
		len -= n;
	}
	return true;
}

static bool mentions(struct fdry_span text, const char *word)
{
	const uint8_t *at = text.data, *end = text.data + text.len;

	for (; (at = memchr(at, *word, (size_t)(end - at))); at++)
		if (word_at(at, (size_t)(end - at), word))
			return true;
	return false;
}

/* Whether the compiled code may depend on other files, on names or on times, which are not part of
 * keys. */
static bool depends_on_more(const struct fdry_kernels_unit *u)
{
	static const char *const words[] = { "include", "embed", "__FILE__", "__DATE__", "__TIME" };
	bool found = false;
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]) && !found; i++)
		found = mentions(u->code.bytes, words[i]);
	for (i = 0; i < u->src.noptions && !found; i++)
		found = strstr(u->src.options[i], "include") || strstr(u->src.options[i], "file") ||
			strstr(u->src.options[i], "pch") || u->src.options[i][0] != '-' ||
			!strncmp(u->src.options[i], "-I", 2) ||
			!strncmp(u->src.options[i], "-i", 2) ||
			!strncmp(u->src.options[i], "-optf", 5);
	return found;
}

static int source_read(struct fdry_kernels_unit *u)
{
	const char *text = u->src.data;
	size_t len = u->src.len;

	while (len && !text[len - 1])
		len--;
	if (!len || memchr(text, 0, len))
		return fdry_fail(FDRY_E_INVAL,
				 "%s: the source is empty or contains zero bytes; it must be text",
				 u->title);
	u->code = (struct fdry_devcode){ .kind = FDRY_DEVCODE_PTX, .bytes = { u->src.data, len } };
	u->compiled = true;
	return 0;
}

static int code_read(const struct fdry_kernels *k, struct fdry_kernels_unit *u)
{
	int err;

	if (u->src.target)
		return fdry_fail(FDRY_E_INVAL,
				 "%s: only source can have a target; code names its own", u->title);
	err = fdry_devcode_init(u->src.data, u->src.len, k->cc, &u->code);
	if (err)
		return fdry_fail_at(err, "%s", u->title);
	u->compiled = u->code.kind == FDRY_DEVCODE_PTX;
	u->keep = u->compiled;
	if (u->compiled)
		return 0;
	err = fdry_module_check(k->drv, u->code.bytes);
	return err ? fdry_fail_at(err, "%s", u->title) : 0;
}

static void title_make(struct fdry_kernels_unit *u)
{
	if (u->src.name && *u->src.name)
		snprintf(u->title, sizeof(u->title), "'%s'", u->src.name);
	else
		snprintf(u->title, sizeof(u->title), "the %s of %zu bytes",
			 u->source ? "source" : "code", u->src.len);
}

/* --- targets --- */

static int target_unable(const struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			 const char *target)
{
	const char *why = strchr(target, 'a') && target[strlen(target) - 1] == 'a'
				  ? "runs on exactly that architecture"
			  : target[strlen(target) - 1] == 'f'
				  ? "runs on that family of architectures from it on"
				  : "runs on that architecture and above";

	return fdry_fail(FDRY_E_UNABLE,
			 "%s is for %s, which %s, and device %d is %s; compile it for %s or below",
			 u->title, target, why, (int)k->dev, k->arch, k->arch);
}

/* Refuse PTX that the driver would refuse without a reason. */
static int ptx_check(const struct fdry_kernels *k, const struct fdry_kernels_unit *u)
{
	struct fdry_ptx_head head;
	struct fdry_target t;
	int needs;

	fdry_ptx_head_read(u->code.bytes, &head);
	if (*head.target && fdry_target_parse(head.target, &t) && !fdry_target_runs(&t, k->cc))
		return target_unable(k, u, head.target);
	needs = head.version ? fdry_ptx_needs(head.version) : 0;
	if (needs <= k->drv->version)
		return 0;
	return fdry_fail(
		FDRY_E_UNABLE,
		"%s is PTX version %u.%u of CUDA %d.%d, and this driver, of CUDA %d.%d, compiles "
		"PTX up to %u.%u; install a newer driver, or write .version %u.%u",
		u->title, head.version / 10, head.version % 10, needs / 1000, needs % 1000 / 10,
		k->drv->version / 1000, k->drv->version % 1000 / 10,
		fdry_ptx_of_driver(k->drv->version) / 10, fdry_ptx_of_driver(k->drv->version) % 10,
		fdry_ptx_of_driver(k->drv->version) / 10, fdry_ptx_of_driver(k->drv->version) % 10);
}

static int source_target(struct fdry_kernels *k, struct fdry_kernels_unit *u)
{
	const struct fdry_nvrtc *n;
	struct fdry_target t;
	int major, minor;
	int err = fdry_nvrtc_need(k, &n);

	if (err)
		return fdry_fail_at(err, "%s", u->title);
	fdry_nvrtc_version(n, &major, &minor);
	snprintf(u->compiler, sizeof(u->compiler), "nvrtc %d.%d, %s", major, minor, k->compiler);
	if (!u->src.target)
		return fdry_nvrtc_target(n, k->cc, u->target);
	if (strlen(u->src.target) >= sizeof(u->target) || !fdry_target_parse(u->src.target, &t))
		return fdry_fail(
			FDRY_E_INVAL,
			"%s: '%s' is not a target; targets are like sm_90, sm_90a and compute_90",
			u->title, u->src.target);
	if (!fdry_target_runs(&t, k->cc))
		return target_unable(k, u, u->src.target);
	if (!strncmp(u->src.target, "sm_", 3) && t.arch / 10 != k->cc / 10)
		return fdry_fail(FDRY_E_UNABLE,
				 "%s: machine code for %s does not run on device %d, which is %s; "
				 "compile for compute_%u",
				 u->title, u->src.target, (int)k->dev, k->arch, t.arch);
	snprintf(u->target, sizeof(u->target), "%s", u->src.target);
	return 0;
}

static int target_choose(struct fdry_kernels *k, struct fdry_kernels_unit *u)
{
	if (u->source)
		return source_target(k, u);
	snprintf(u->target, sizeof(u->target), "%s", k->arch);
	snprintf(u->compiler, sizeof(u->compiler), "%s", k->compiler);
	return u->compiled ? ptx_check(k, u) : 0;
}

/* --- the key --- */

static int key_make(const struct fdry_kernels *k, struct fdry_kernels_unit *u)
{
	const struct fdry_compiled_source src = {
		.arch = k->arch,
		.software = k->drv->software,
		.compiler = u->compiled ? u->compiler : "none",
		.content = u->content,
		.form = u->source ? "source" : u->compiled ? "ptx" : "cubin",
		.options = (const char *)u->options.data,
		.target = u->target,
		.version = u->src.version ? u->src.version : "",
	};
	struct fdry_oid content;
	int err = fdry_oid_of(u->code.bytes.data, u->code.bytes.len, &content);

	if (err)
		return err;
	fdry_oid_hex(&content, u->content);
	fdry_compiled_facts(&src, u->facts);
	return fdry_compiled_key(u->facts, FDRY_COMPILED_FACTS, &u->key);
}

static int source_check(const struct fdry_kernels_source *s)
{
	if (s->reserved || s->form > FDRY_KERNELS_SOURCE)
		return fdry_fail(FDRY_E_OPTS,
				 "a source's form is %u and its reserved field %u; forms are 0 "
				 "(code) and 1 (source)",
				 s->form, s->reserved);
	if (!s->data)
		return fdry_fail(FDRY_E_INVAL, "a source has no bytes (NULL)");
	if (s->len > FDRY_KERNEL_TEXT_MAX)
		return fdry_fail(FDRY_E_LIMIT, "a source has %zu bytes; %u are allowed", s->len,
				 FDRY_KERNEL_TEXT_MAX);
	if (s->version && strlen(s->version) > FDRY_FACT_MAX)
		return fdry_fail(FDRY_E_LIMIT, "a source's version has %zu bytes; %u are allowed",
				 strlen(s->version), FDRY_FACT_MAX);
	return 0;
}

int fdry_kernels_unit_init(struct fdry_kernels *k, const struct fdry_kernels_source *source,
			   struct fdry_kernels_unit *ret)
{
	int err;

	memset(ret, 0, sizeof(*ret));
	err = fdry_need(source);
	if (err)
		return err;
	err = fdry_opts_take(source, &ret->src, sizeof(ret->src));
	if (err)
		return err;
	err = source_check(&ret->src);
	if (err)
		return err;
	ret->source = ret->src.form == FDRY_KERNELS_SOURCE;
	title_make(ret);
	err = ret->source ? source_read(ret) : code_read(k, ret);
	if (err)
		goto out_release;
	err = options_read(ret);
	if (err)
		goto out_release;
	if (ret->source)
		ret->keep = ret->src.version || !depends_on_more(ret);
	err = target_choose(k, ret);
	if (err)
		goto out_release;
	err = key_make(k, ret);
	if (err)
		goto out_release;
	return 0;
out_release:
	fdry_kernels_unit_release(ret);
	return err;
}

void fdry_kernels_unit_release(struct fdry_kernels_unit *u)
{
	fdry_devcode_release(&u->code);
	fdry_buf_release(&u->options);
}
