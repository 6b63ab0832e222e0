// SPDX-License-Identifier: Apache-2.0
/*
 * diff.c - compares two images: identity, memory, tensors; diff.h names the files for the rest.
 *
 * Two seals of one workload should result in one image. If they do not, this command shows why.
 */
#include "api/cmd/audit.h"
#include "api/cmd/diff.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "image/array_pieces.h"

/* --- reporting --- */

static const char *const whats[] = { "removed", "added", "changed" };

static void part_begin(struct diff *d, const char *part)
{
	d->part = part;
	d->headed = false;
}

void diff_begin(struct diff *d, enum diff_what what, const char *name, const char *a, const char *b)
{
	const struct cmd_colours *c = cmd_colours();

	d->count++;
	if (cmd_has(d->a, JSON)) {
		json_open(&d->j, NULL, '{');
		json_string(&d->j, "part", d->part);
		json_string(&d->j, "what", whats[what]);
		json_string(&d->j, "name", name);
		if (*a)
			json_string(&d->j, "a", a);
		if (*b)
			json_string(&d->j, "b", b);
		return;
	}
	if (cmd_has(d->a, QUIET))
		return;
	if (!d->headed)
		printf("%s\n", d->part);
	d->headed = true;
	if (*a)
		printf("%s- %s %s%s\n", c->removed, cmd_text(name), cmd_text(a), c->reset);
	if (*b)
		printf("%s%c %s %s%s\n", *a || what == DIFF_ADDED ? c->added : "",
		       *a || what == DIFF_ADDED ? '+' : '~', cmd_text(name), cmd_text(b), c->reset);
}

void diff_number(struct diff *d, const char *key, uint64_t value)
{
	if (cmd_has(d->a, JSON))
		json_number(&d->j, key, value);
}

void diff_more(struct diff *d, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	if (cmd_has(d->a, JSON) || cmd_has(d->a, QUIET))
		return;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	printf("    %s\n", cmd_text(text));
	free(text);
}

void diff_end(struct diff *d)
{
	if (cmd_has(d->a, JSON))
		json_close(&d->j, '}');
}

/* Report an entry that only one side has, or whose text differs. */
static int found_texts(struct diff *d, const char *name, const char *a, const char *b)
{
	if (!strcmp(a, b))
		return 0;
	diff_begin(d, !*b ? DIFF_REMOVED : !*a ? DIFF_ADDED : DIFF_CHANGED, name, a, b);
	diff_end(d);
	return 0;
}

int diff_list(struct diff *d, const struct diff_list *l)
{
	uint32_t i = 0, j = 0;
	int order, err = 0;

	part_begin(d, l->part);
	while (!err && (i < l->n[0] || j < l->n[1])) {
		order = i == l->n[0] ? 1 : j == l->n[1] ? -1 : l->order(d, i, j);
		err = l->found(d, order <= 0 ? (int64_t)i : -1, order >= 0 ? (int64_t)j : -1);
		i += order <= 0;
		j += order >= 0;
	}
	return err;
}

/* --- identity --- */

static const char *fact_key(const struct cmd_image *im, uint32_t i)
{
	return fdry_manifest_str(&im->m, im->m.facts[i].key);
}

static int fact_order(const struct diff *d, uint32_t i, uint32_t j)
{
	return strcmp(fact_key(&d->im[0], i), fact_key(&d->im[1], j));
}

static int fact_found(struct diff *d, int64_t i, int64_t j)
{
	const struct fdry_manifest *a = &d->im[0].m, *b = &d->im[1].m;
	char text[2][1024] = { "", "" };

	if (i >= 0)
		snprintf(text[0], sizeof(text[0]), "= %s", fdry_manifest_str(a, a->facts[i].value));
	if (j >= 0)
		snprintf(text[1], sizeof(text[1]), "= %s", fdry_manifest_str(b, b->facts[j].value));
	return found_texts(
		d, i >= 0 ? fact_key(&d->im[0], (uint32_t)i) : fact_key(&d->im[1], (uint32_t)j),
		text[0], text[1]);
}

static int limit_order(const struct diff *d, uint32_t i, uint32_t j)
{
	uint32_t a = d->im[0].m.limits[i].limit, b = d->im[1].m.limits[j].limit;

	return (a > b) - (a < b);
}

static int limit_found(struct diff *d, int64_t i, int64_t j)
{
	const struct fdry_mf_limit *a = i < 0 ? NULL : &d->im[0].m.limits[i],
				   *b = j < 0 ? NULL : &d->im[1].m.limits[j];
	char name[32], text[2][40] = { "", "" };

	snprintf(name, sizeof(name), "limit %u", (a ? a : b)->limit);
	if (a)
		snprintf(text[0], sizeof(text[0]), ">= %llu", (unsigned long long)a->value);
	if (b)
		snprintf(text[1], sizeof(text[1]), ">= %llu", (unsigned long long)b->value);
	return found_texts(d, name, text[0], text[1]);
}

/* --- memory --- */

static int region(struct diff *d)
{
	char text[2][64];
	int k;

	part_begin(d, "memory");
	for (k = 0; k < 2; k++)
		snprintf(text[k], sizeof(text[k]), "%#llx to %#llx",
			 (unsigned long long)d->im[k].m.header->base,
			 (unsigned long long)d->im[k].m.header->end);
	return found_texts(d, "region", text[0], text[1]);
}

static int segment_order(const struct diff *d, uint32_t i, uint32_t j)
{
	uint64_t a = d->im[0].m.segments[i].addr, b = d->im[1].m.segments[j].addr;

	return (a > b) - (a < b);
}

static void segment_text(const struct fdry_mf_segment *s, char *ret, size_t len)
{
	snprintf(ret, len, "%llu %s", (unsigned long long)s->size, cmd_role_name(s->role));
}

static int segment_found(struct diff *d, int64_t i, int64_t j)
{
	const struct fdry_mf_segment *a = i < 0 ? NULL : &d->im[0].m.segments[i],
				     *b = j < 0 ? NULL : &d->im[1].m.segments[j];
	char name[40], text[2][64] = { "", "" };

	snprintf(name, sizeof(name), "segment %#llx", (unsigned long long)(a ? a : b)->addr);
	if (a)
		segment_text(a, text[0], sizeof(text[0]));
	if (b)
		segment_text(b, text[1], sizeof(text[1]));
	return found_texts(d, name, text[0], text[1]);
}

static int host_order(const struct diff *d, uint32_t i, uint32_t j)
{
	(void)d;
	return (i > j) - (i < j);
}

static int host_found(struct diff *d, int64_t i, int64_t j)
{
	char name[40], text[2][64] = { "", "" };
	const struct fdry_mf_host *h;

	snprintf(name, sizeof(name), "host segment %lld", (long long)(i < 0 ? j : i));
	if (i >= 0) {
		h = &d->im[0].m.hosts[i];
		snprintf(text[0], sizeof(text[0]), "%llu aligned to %u",
			 (unsigned long long)h->size, h->align);
	}
	if (j >= 0) {
		h = &d->im[1].m.hosts[j];
		snprintf(text[1], sizeof(text[1]), "%llu aligned to %u",
			 (unsigned long long)h->size, h->align);
	}
	return found_texts(d, name, text[0], text[1]);
}

static int array_order(const struct diff *d, uint32_t i, uint32_t j)
{
	(void)d;
	return (i > j) - (i < j);
}

static int array_found(struct diff *d, int64_t i, int64_t j)
{
	const int64_t at[2] = { i, j };
	char name[40], text[2][160] = { "", "" };
	const struct fdry_mf_mipmap_level *l;
	const struct fdry_mf_array *a;
	int k, n;

	snprintf(name, sizeof(name), "array %lld", (long long)(i < 0 ? j : i));
	for (k = 0; k < 2; k++) {
		if (at[k] < 0)
			continue;
		a = &d->im[k].m.arrays[at[k]];
		n = snprintf(text[k], sizeof(text[k]),
			     "%u x %u x %u of format %u x %u, flags %#x", a->width, a->height,
			     a->depth, a->format, a->channels, a->flags);
		l = fdry_manifest_level(&d->im[k].m, (uint32_t)at[k]);
		if (l)
			snprintf(text[k] + n, sizeof(text[k]) - (size_t)n,
				 ", level %u of mipmap %u", l->level, l->mipmap);
	}
	return found_texts(d, name, text[0], text[1]);
}

static int mipmap_found(struct diff *d, int64_t i, int64_t j)
{
	const int64_t at[2] = { i, j };
	char name[40], text[2][160] = { "", "" };
	const struct fdry_mf_mipmap *m;
	int k;

	snprintf(name, sizeof(name), "mipmap %lld", (long long)(i < 0 ? j : i));
	for (k = 0; k < 2; k++) {
		if (at[k] < 0)
			continue;
		m = &d->im[k].m.mipmaps[at[k]];
		snprintf(text[k], sizeof(text[k]),
			 "%u x %u x %u of format %u x %u, flags %#x, %u levels", m->top.width,
			 m->top.height, m->top.depth, m->top.format, m->top.channels,
			 m->top.flags, m->levels);
	}
	return found_texts(d, name, text[0], text[1]);
}

/* --- tensors --- */

static const char *tensor_name(const struct cmd_image *im, uint32_t i)
{
	return fdry_manifest_str(&im->m, im->m.tensors[i].name);
}

static int tensor_order(const struct diff *d, uint32_t i, uint32_t j)
{
	return strcmp(tensor_name(&d->im[0], i), tensor_name(&d->im[1], j));
}

static void tensor_text(const struct cmd_image *im, int64_t i, char *ret, size_t len)
{
	uint64_t capacity;
	size_t n;

	if (i < 0)
		return;
	cmd_tensor_text(&im->m.tensors[i], ret, len);
	capacity = cmd_capacity_of(&im->m, (uint32_t)i);
	n = strlen(ret);
	if (capacity)
		snprintf(ret + n, len - n, " capacity %llu", (unsigned long long)capacity);
}

static int tensor_found(struct diff *d, int64_t i, int64_t j)
{
	char text[2][1024] = { "", "" };

	tensor_text(&d->im[0], i, text[0], sizeof(text[0]));
	tensor_text(&d->im[1], j, text[1], sizeof(text[1]));
	return found_texts(d,
			   i >= 0 ? tensor_name(&d->im[0], (uint32_t)i)
				  : tensor_name(&d->im[1], (uint32_t)j),
			   text[0], text[1]);
}

/* --- random numbers --- */

static const char *rng_use_generator(const struct cmd_image *im, const struct fdry_mf_rng_use *d)
{
	return fdry_manifest_str(&im->m, im->m.generators[d->generator].name);
}

static uint64_t rng_use_key(const struct cmd_image *im, const struct fdry_mf_rng_use *d)
{
	return im->m.graphs[d->graph].key;
}

static int rng_use_order(const struct diff *d, uint32_t i, uint32_t j)
{
	const struct fdry_mf_rng_use *a = &d->im[0].m.rng_uses[i], *b = &d->im[1].m.rng_uses[j];
	uint64_t x = rng_use_key(&d->im[0], a), y = rng_use_key(&d->im[1], b);

	return x != y ? (x > y) - (x < y)
		      : strcmp(rng_use_generator(&d->im[0], a), rng_use_generator(&d->im[1], b));
}

static int rng_use_found(struct diff *d, int64_t i, int64_t j)
{
	char name[320] = "", text[2][128] = { "", "" };
	const int64_t at[2] = { i, j };
	const struct fdry_mf_rng_use *use;
	int k;

	for (k = 0; k < 2; k++) {
		if (at[k] < 0)
			continue;
		use = &d->im[k].m.rng_uses[at[k]];
		snprintf(name, sizeof(name), "graph %llu from %s",
			 (unsigned long long)rng_use_key(&d->im[k], use),
			 rng_use_generator(&d->im[k], use));
		snprintf(text[k], sizeof(text[k]), "%llu, seed at %#llx, offset at %#llx",
			 (unsigned long long)use->increment, (unsigned long long)use->seed,
			 (unsigned long long)use->offset);
	}
	return found_texts(d, name, text[0], text[1]);
}

/* --- events that graphs share --- */

static int event_order(const struct diff *d, uint32_t i, uint32_t j)
{
	const struct fdry_mf_event *a = &d->im[0].m.events[i], *b = &d->im[1].m.events[j];
	uint64_t x = d->im[0].m.graphs[a->graph].key, y = d->im[1].m.graphs[b->graph].key;

	return x != y ? (x > y) - (x < y) : (a->event > b->event) - (a->event < b->event);
}

static int event_found(struct diff *d, int64_t i, int64_t j)
{
	char name[64] = "", text[2][32] = { "", "" };
	const int64_t at[2] = { i, j };
	const struct fdry_mf_event *e;
	int k;

	for (k = 0; k < 2; k++) {
		if (at[k] < 0)
			continue;
		e = &d->im[k].m.events[at[k]];
		snprintf(name, sizeof(name), "event %u of graph %llu", e->event,
			 (unsigned long long)d->im[k].m.graphs[e->graph].key);
		snprintf(text[k], sizeof(text[k]), "number %u", e->number);
	}
	return found_texts(d, name, text[0], text[1]);
}

/* --- values of variables --- */

static const char *variable_name(const struct cmd_image *im, const struct fdry_mf_variable *v)
{
	return fdry_manifest_str(&im->m, v->name);
}

static int variable_order(const struct diff *d, uint32_t i, uint32_t j)
{
	const struct fdry_mf_variable *a = &d->im[0].m.variables[i], *b = &d->im[1].m.variables[j];
	int order = strcmp(variable_name(&d->im[0], a), variable_name(&d->im[1], b));

	if (a->object != b->object)
		return (a->object > b->object) - (a->object < b->object);
	return order ? order : (a->offset > b->offset) - (a->offset < b->offset);
}

static int variable_found(struct diff *d, int64_t i, int64_t j)
{
	char name[320] = "", text[2][128] = { "", "" }, hex[FDRY_OID_HEX_SIZE];
	const int64_t at[2] = { i, j };
	const struct fdry_mf_variable *v;
	int k;

	for (k = 0; k < 2; k++) {
		if (at[k] < 0)
			continue;
		v = &d->im[k].m.variables[at[k]];
		snprintf(name, sizeof(name), "%s of kernel object %u",
			 variable_name(&d->im[k], v), v->object);
		snprintf(text[k], sizeof(text[k]), "%llu bytes at %llu, %.12s",
			 (unsigned long long)v->size, (unsigned long long)v->offset,
			 fdry_oid_hex(&v->oid, hex));
	}
	return found_texts(d, name, text[0], text[1]);
}

/* --- files --- */

static int file_order(const struct diff *d, uint32_t i, uint32_t j)
{
	const struct fdry_mf_file *a = &d->im[0].m.files[i], *b = &d->im[1].m.files[j];
	int order = strcmp(fdry_manifest_str(&d->im[0].m, a->name),
			   fdry_manifest_str(&d->im[1].m, b->name));

	return order ? order : (a->offset > b->offset) - (a->offset < b->offset);
}

static int file_found(struct diff *d, int64_t i, int64_t j)
{
	char name[320] = "", text[2][128] = { "", "" }, hex[FDRY_OID_HEX_SIZE];
	const int64_t at[2] = { i, j };
	const struct fdry_mf_file *f;
	int k;

	for (k = 0; k < 2; k++) {
		if (at[k] < 0)
			continue;
		f = &d->im[k].m.files[at[k]];
		snprintf(name, sizeof(name), "%.300s", fdry_manifest_str(&d->im[k].m, f->name));
		snprintf(text[k], sizeof(text[k]), "%llu bytes at %llu, %.12s%s",
			 (unsigned long long)f->size, (unsigned long long)f->offset,
			 fdry_oid_hex(&f->oid, hex),
			 f->flags & FDRY_FILE_EXECUTABLE ? ", executable" : "");
	}
	return found_texts(d, name, text[0], text[1]);
}

/* --- the whole image --- */

#define LIST(part_, member, prefix) \
	{ \
		.part = part_, .n = { d->im[0].m.n_##member, d->im[1].m.n_##member }, \
		.order = prefix##_order, .found = prefix##_found \
	}

static int diff_lists(struct diff *d)
{
	const struct diff_list lists[] = {
		LIST("identity", facts, fact),	      LIST("limits", limits, limit),
		LIST("segments", segments, segment),  LIST("host segments", hosts, host),
		LIST("tensors", tensors, tensor),     LIST("draws", rng_uses, rng_use),
		LIST("shared events", events, event), LIST("variables", variables, variable),
		LIST("files", files, file),	      LIST("arrays", arrays, array),
		{ .part = "mipmaps", .n = { d->im[0].m.n_mipmaps, d->im[1].m.n_mipmaps },
		  .order = array_order, .found = mipmap_found },
	};
	size_t i;
	int err = region(d);

	for (i = 0; i < sizeof(lists) / sizeof(lists[0]) && !err; i++)
		err = diff_list(d, &lists[i]);
	return err;
}

/* --- the targets of words --- */

static int audit_found(struct diff *d, const char *name, const struct fdry_mf_audit *a,
		       const struct fdry_mf_audit *b)
{
	char text[2][400];

	audit_text(a, text[0], sizeof(text[0]));
	audit_text(b, text[1], sizeof(text[1]));
	return found_texts(d, name, text[0], text[1]);
}

/* Compare the graphs that both images have. */
static int audits_compare(struct diff *d, const struct fdry_audit *audits)
{
	const struct fdry_manifest *a = &d->im[0].m, *b = &d->im[1].m;
	const struct fdry_mf_audit *left = fdry_array(audits[0].entries, struct fdry_mf_audit);
	const struct fdry_mf_audit *right = fdry_array(audits[1].entries, struct fdry_mf_audit);
	const struct fdry_mf_graph *other;
	char name[40];
	uint32_t i;
	int err = 0;

	part_begin(d, "audit");
	for (i = 0; i < a->n_graphs && !err; i++) {
		other = fdry_manifest_graph(b, a->graphs[i].key);
		snprintf(name, sizeof(name), "arguments of graph %llu",
			 (unsigned long long)a->graphs[i].key);
		if (other)
			err = audit_found(d, name, &left[i], &right[other - b->graphs]);
	}
	return err ? err : audit_found(d, "content", &left[a->n_graphs], &right[b->n_graphs]);
}

static int diff_audit(struct diff *d)
{
	struct fdry_audit audits[2];
	int err;

	if (!cmd_has(d->a, AUDIT))
		return 0;
	err = audit_read(d->reader, &d->im[0].m, &audits[0]);
	if (err)
		return err;
	err = audit_read(d->reader, &d->im[1].m, &audits[1]);
	if (err)
		goto out_release;
	err = audits_compare(d, audits);
	fdry_audit_release(&audits[1]);
out_release:
	fdry_audit_release(&audits[0]);
	return err;
}

static int diff_all(struct diff *d)
{
	int err = diff_kernels_rank(d) ?: diff_lists(d) ?: diff_content(d) ?: diff_kernels(d) ?:
		  diff_graphs(d) ?: diff_audit(d);

	diff_kernels_release(d);
	return err;
}

static void head(struct diff *d)
{
	char hex[FDRY_OID_HEX_SIZE];
	bool json = cmd_has(d->a, JSON);
	int k;

	if (json)
		json_open(&d->j, NULL, '{');
	for (k = 0; k < 2; k++) {
		if (json)
			json_oid(&d->j, k ? "b" : "a", &d->im[k].oid);
		else
			cmd_say(d->a, "%s %s %s\n", k ? "+++" : "---",
				fdry_oid_hex(&d->im[k].oid, hex), d->a->argv[k]);
	}
	if (json)
		json_open(&d->j, "differences", '[');
}

static bool same_ids(const struct diff *d)
{
	return fdry_oid_eq(&d->im[0].oid, &d->im[1].oid);
}

static void tail(struct diff *d)
{
	if (cmd_has(d->a, JSON)) {
		json_close(&d->j, ']');
		json_bool(&d->j, "same", same_ids(d));
		json_close(&d->j, '}');
	} else {
		cmd_say(d->a, "%llu difference%s%s\n", (unsigned long long)d->count,
			cmd_plural(d->count),
			d->count || same_ids(d)
				? ""
				: ", except the order of kernels, chunk borders or names");
	}
}

static int diff_images(struct diff *d)
{
	int err = cmd_image_open(d->reader, &d->im[0].oid, &d->im[0]);

	if (err)
		return err;
	err = cmd_image_open(d->reader, &d->im[1].oid, &d->im[1]);
	if (err)
		goto out_close;
	head(d);
	if (!same_ids(d))
		err = diff_all(d);
	tail(d);
	cmd_image_close(&d->im[1]);
out_close:
	cmd_image_close(&d->im[0]);
	return err;
}

int cmd_diff(const struct cmd_args *a, struct fdry_store *s)
{
	struct diff d = { .a = a, .j = { .f = stdout } };
	int err = cmd_resolve(s, a->argv[0], true, &d.im[0].oid) ?:
		  cmd_resolve(s, a->argv[1], true, &d.im[1].oid) ?:
		  fdry_reader_begin(s, &d.reader);

	if (err)
		return cmd_fail(err);
	err = diff_images(&d);
	fdry_reader_end(d.reader);
	if (err)
		return cmd_fail(err);
	return same_ids(&d) ? CMD_OK : CMD_FOUND;
}
