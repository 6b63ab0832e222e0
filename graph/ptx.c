// SPDX-License-Identifier: Apache-2.0
/* ptx.c - reads the head of PTX, compares versions and targets, and compiles; see ptx.h. */
#include "graph/ptx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/telemetry.h"

/* PTX versions and the CUDA versions that introduced them: X(PTX, CUDA), ascending. */
#define PTX_VERSIONS(X) \
	X(60, 9000) \
	X(61, 9010) X(62, 9020) X(63, 10000) X(64, 10010) X(65, 10020) X(70, 11000) X(71, 11010) \
		X(72, 11020) X(73, 11030) X(74, 11040) X(75, 11050) X(76, 11060) X(77, 11070) \
			X(78, 11080) X(80, 12000) X(81, 12010) X(82, 12020) X(83, 12030) \
				X(84, 12040) X(85, 12050) X(86, 12070) X(87, 12080) X(88, 12090) \
					X(90, 13000) X(91, 13010) X(92, 13020) X(93, 13030) \
						X(94, 13040)

static const struct {
	uint32_t ptx;
	int cuda;
} versions[] = {
#define X(ptx, cuda) { ptx, cuda },
	PTX_VERSIONS(X)
#undef X
};
#define VERSIONS (sizeof(versions) / sizeof(versions[0]))

int fdry_ptx_needs(uint32_t version)
{
	size_t i;

	for (i = 0; i < VERSIONS; i++)
		if (version <= versions[i].ptx)
			return versions[i].cuda;
	return versions[VERSIONS - 1].cuda + 10;
}

uint32_t fdry_ptx_of_driver(int cuda)
{
	uint32_t ptx = 0;
	size_t i;

	for (i = 0; i < VERSIONS && versions[i].cuda <= cuda; i++)
		ptx = versions[i].ptx;
	return ptx;
}

bool fdry_target_parse(const char *name, struct fdry_target *ret)
{
	struct fdry_target t = { 0 };
	const char *p = name;

	if (!strncmp(p, "sm_", 3))
		p += 3;
	else if (!strncmp(p, "compute_", 8))
		p += 8;
	else
		return false;
	for (; isdigit((unsigned char)*p) && t.arch < 10000; p++)
		t.arch = 10 * t.arch + (uint32_t)(*p - '0');
	if (*p == 'a' || *p == 'f')
		t.suffix = *p++;
	if (*p || t.arch < 10)
		return false;
	*ret = t;
	return true;
}

bool fdry_target_runs(const struct fdry_target *t, uint32_t cc)
{
	if (t->suffix == 'a')
		return cc == t->arch;
	if (t->suffix == 'f')
		return cc >= t->arch && cc / 10 == t->arch / 10;
	return cc >= t->arch;
}

bool fdry_target_has_exact(uint32_t cc)
{
	return cc >= 90;
}

/* --- the head --- */

/* The first character after blanks and comments; @end if a comment does not end. */
static const char *blanks_skip(const char *p, const char *end)
{
	const char *q;

	while (p < end) {
		if (isspace((unsigned char)*p)) {
			p++;
		} else if (end - p >= 2 && p[0] == '/' && p[1] == '/') {
			q = memchr(p, '\n', (size_t)(end - p));
			p = q ? q + 1 : end;
		} else if (end - p >= 2 && p[0] == '/' && p[1] == '*') {
			q = memmem(p + 2, (size_t)(end - p - 2), "*/", 2);
			p = q ? q + 2 : end;
		} else {
			break;
		}
	}
	return p;
}

/* Read the next word, cut to @len bytes; returns its end. */
static const char *word_read(const char *p, const char *end, char *word, size_t len)
{
	size_t n = 0;

	p = blanks_skip(p, end);
	for (; p < end && !isspace((unsigned char)*p) && *p != ',' && *p != ';' && *p != '/'; p++)
		if (n + 1 < len)
			word[n++] = *p;
	word[n] = 0;
	return p;
}

static uint32_t version_parse(const char *word)
{
	char *end;
	unsigned long major = strtoul(word, &end, 10), minor;

	if (end == word || *end != '.' || !isdigit((unsigned char)end[1]))
		return 0;
	minor = strtoul(end + 1, &end, 10);
	return *end || major > 99 || minor > 9 ? 0 : (uint32_t)(10 * major + minor);
}

void fdry_ptx_head_read(struct fdry_span text, struct fdry_ptx_head *ret)
{
	const char *p = (const char *)text.data, *end = p + text.len;
	char word[24];

	memset(ret, 0, sizeof(*ret));
	p = word_read(p, end, word, sizeof(word));
	if (strcmp(word, ".version"))
		return;
	p = word_read(p, end, word, sizeof(word));
	ret->version = version_parse(word);
	p = word_read(p, end, word, sizeof(word));
	if (!strcmp(word, ".target"))
		word_read(p, end, ret->target, sizeof(ret->target));
}

int fdry_ptx_compile(const struct fdry_driver *drv, struct fdry_span ptx, const char *name,
		     struct fdry_buf *ret)
{
	struct fdry_buf text = { 0 };
	CUlinkState link;
	void *code;
	size_t len;
	int err = fdry_buf_put(&text, ptx.data, ptx.len);

	if (err)
		return err;
	err = fdry_buf_put(&text, "", 1); /* the length includes the terminating NUL */
	if (err)
		goto out_release;
	err = fdry_call(drv, cuLinkCreate_v2, 0, NULL, NULL, &link);
	if (err)
		goto out_release;
	fdry_count(FDRY_METRIC_COMPILES_DRIVER, 1);
	err = fdry_call(drv, cuLinkAddData_v2, link, CU_JIT_INPUT_PTX, text.data, text.len,
			name, 0, NULL, NULL);
	if (err)
		goto out_destroy;
	err = fdry_call(drv, cuLinkComplete, link, &code, &len);
	if (err)
		goto out_destroy;
	err = fdry_buf_put(ret, code, len);
out_destroy:
	(void)fdry_call_raw(drv, cuLinkDestroy, link);
out_release:
	fdry_buf_release(&text);
	return err;
}
