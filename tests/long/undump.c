// SPDX-License-Identifier: Apache-2.0
/*
 * undump.c - dumps of a store in which lines were changed, read by foundry-store undump.
 *
 * The command runs in this process. It fails with a message and a status that the manual lists, or
 * it succeeds, and then the store verifies without a fault. To be run under sanitizers (make
 * check-long does).
 */
#include "api/cmd/cmd.h"
#include "tests/lib/image.h"

#include "tests/long/long.h"

#define LINES_MAX 4000
#define OBJECT_LINES 60
#define LINE_MAX_OURS 4096 /* longer lines are left as they are */

enum { REFUSED, STORED };

static char *text, *lines[LINES_MAX];
static size_t nlines;
static char place[300], file[300];

static const char *const words[] = {
	"object",
	"end",
	"link",
	"bytes",
	"text",
	"ref",
	"pinned",
	"identity",
	"chunk",
	"graph",
	"manifest",
	"kernel",
	"-",
	"node",
	"edge",
	"memset",
	"memcpy",
	"args",
	"attr",
	"grid",
	"0",
	"4294967295",
	"18446744073709551615",
	"-1",
	"0x7fffffffffffffff",
	"99999999999999999999999",
	"chunk,graph,manifest",
	"",
	"\xff",
	"\033[2J",
	"event",
	"record",
	"wait",
	"data",
	"1 0 1",
	"{",
	"}",
	"[",
	"\"",
	"\"\\u0000\"",
	"1e999",
	"null",
};
#define WORDS (sizeof(words) / sizeof(words[0]))

static void seal_images(void)
{
	char out[320];
	static struct work w;

	snprintf(path, sizeof(path), "%s/store", long_dir);
	work_make(&w);
	graph_add(&w, 1);
	capture_start(&w);
	cuda_ok(cuMemsetD32Async, w.a, 7, 100, w.stream);
	cuda_ok(cuMemcpyDtoDAsync_v2, w.a, w.c, 400, w.stream);
	launch_add(&w, w.a, w.b, w.c);
	ok(fdry_capture_graph(w.cap, 7, "set", capture_stop(&w)));
	tensor_add(&w, "a", w.a, FDRY_USE_INPUT, 0);
	tensor_add(&w, "b", w.b, FDRY_USE_CONST, 0);
	tensor_add(&w, "c", w.c, FDRY_USE_OUTPUT, 0);
	ok(work_seal(&w, "img"));
	ok(fdry_image_tag(w.store, "img", "again"));
	fdry_store_close(w.store);
	snprintf(out, sizeof(out), "'%s' -q -s '%s' dump > '%s/dump'", test_built("foundry-store"),
		 path, long_dir);
	ck_assert_int_eq(system(out), 0);
}

static void make(void)
{
	long_checked(seal_images);
}

/* Keep a line, but drop objects of many lines: they hold the bytes of kernels, in which changes
 * find few faults. The other objects then refer to objects that the store lacks. */
static void lines_keep(char *line)
{
	static size_t begun;

	if (nlines == LINES_MAX)
		_exit(3);
	lines[nlines++] = line;
	if (!strncmp(line, "object ", 7))
		begun = nlines - 1;
	else if (!strcmp(line, "end") && nlines - begun > OBJECT_LINES)
		nlines = begun;
}

static void begin(void)
{
	char *save = NULL, *line;
	size_t len;

	snprintf(place, sizeof(place), "%s/undumped", long_dir);
	snprintf(file, sizeof(file), "%s/dump", long_dir);
	text = (char *)long_read_file(file, &len);
	text[len] = '\0';
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		lines_keep(line);
	snprintf(file, sizeof(file), "%s/changed", long_dir);
	/* Discard the command's messages; sanitizers report to the descriptor. */
	if (!long_alone)
		stderr = fopen("/dev/null", "w");
	if (!stderr || !freopen("/dev/null", "w", stdout))
		_exit(3);
}

/* --- changes --- */

static const char *word(void)
{
	return words[long_below(WORDS)];
}

/* One word of the line becomes another. */
static void word_change(char *to, const char *line)
{
	size_t count = 1, pick, i;
	const char *p, *end;

	for (p = line; *p; p++)
		count += *p == ' ';
	pick = long_below(count);
	for (p = line, i = 0; i < pick; p++)
		i += *p == ' ';
	end = p + strcspn(p, " ");
	snprintf(to, LINE_MAX_OURS + 100, "%.*s%s%s", (int)(p - line), line, word(), end);
}

static void ids_forget(char *line)
{
	char *p = line;

	for (; *p; p++)
		if (strspn(p, "0123456789abcdef") == 64) {
			memmove(p + 1, p + 64, strlen(p + 64) + 1);
			*p = '-';
		}
}

/* Into @to, which is large enough for all of it. */
static void line_change(char *to, const char *line)
{
	size_t len = strlen(line), at;

	if (len > LINE_MAX_OURS)
		line = "bytes";
	snprintf(to, LINE_MAX_OURS + 100, "%s", line);
	len = strlen(to);
	switch (long_below(6)) {
	case 0:
		snprintf(to, LINE_MAX_OURS + 100, "%s %s", word(), word());
		break;
	case 1:
		word_change(to, line);
		break;
	case 2:
		ids_forget(to);
		break;
	case 3:
		if (len)
			to[long_below(len)] = (char)(1 + long_below(255));
		break;
	case 4:
		snprintf(to + len, LINE_MAX_OURS + 100 - len, " %s", word());
		break;
	default:
		for (at = len; at && at < LINE_MAX_OURS / 2; at *= 2)
			memmove(to + at, to, at);
		to[at ? at : 0] = '\0';
	}
}

static void dump_write(void)
{
	static char changed[5][LINE_MAX_OURS + 200];
	FILE *f = fopen(file, "w");
	size_t i, n = 1 + long_below(5), at[5], what[5], k,
		  most = long_below(3) ? nlines : long_below(nlines);
	bool forget = long_below(3);

	if (!f)
		_exit(3);
	for (k = 0; k < n; k++) {
		at[k] = long_below(nlines);
		what[k] = long_below(8);
		line_change(changed[k], lines[at[k]]);
	}
	/* Ids of changed objects would be wrong, so most dumps have none. Some dumps end early,
	 * after an object. */
	for (i = 0; i < nlines && (i < most || (i && strcmp(lines[i - 1], "end"))); i++) {
		for (k = 0; k < n && at[k] != i; k++)
			;
		if (forget && !strncmp(lines[i], "object ", 7))
			fprintf(f, "object -%s\n", strrchr(lines[i], ' '));
		else if (k == n)
			fprintf(f, "%s\n", lines[i]);
		else if (what[k] == 0)
			continue;
		else if (what[k] == 1)
			fprintf(f, "%s\n%s\n", lines[long_below(nlines)], lines[i]);
		else
			fprintf(f, "%s\n", changed[k]);
	}
	if (fclose(f))
		_exit(3);
}

/* --- the command --- */

static int undump(void)
{
	char *argv[] = { "foundry-store", "-q", "-s", place, "undump", file, NULL };
	struct fdry_store *store = NULL;
	struct cmd_args a;
	int status;

	optind = 1;
	status = cmd_args_parse(6, argv, &a);
	if (status >= 0)
		return status;
	if (fdry_store_open(place, FDRY_STORE_CREATE, &store))
		_exit(3);
	status = a.cmd->fn(&a, store);
	fdry_store_close(store);
	return status;
}

static int run_case(uint64_t nr)
{
	struct fdry_verify_report report = { .sz = sizeof(report) };
	int status;

	if (nr % 50 == 0)
		long_remove(place);
	dump_write();
	status = undump();
	if (status && (status < CMD_FOUND || status > CMD_FAILED))
		return LONG_FAULT;
	if (status)
		return REFUSED;
	if (!long_below(20) &&
	    (fdry_store_verify(place, NULL, &report) || report.damaged || report.missing))
		return LONG_FAULT;
	return STORED;
}

int main(int argc, char **argv)
{
	const struct long_test t = { .name = "undump", .sample = 1000, .all = 200000,
				     .together = 100, .seconds = 60, .prepare = make,
				     .begin = begin, .run = run_case,
				     .ends = { "refused", "stored" } };

	return long_main(argc, argv, &t);
}
