// SPDX-License-Identifier: Apache-2.0
/* report_memory.c - the memory map and the tensors of an image, for its page. */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/report.h"
#include "mm/region.h"

#define GAP 7.0		   /* width of unused addresses between segments */
#define GAPS_WIDTH_MAX 0.3 /* of the map, at most */
#define NARROW 0.4	   /* narrower rectangles are drawn together with the next one */
#define TENSORS_SHOWN 20u
#define TENSORS_MAX 1000u

static const char *const role_fill[] = { "f0", "f2", "f1" };
static const char *const role_back[] = { "b0", "b2", "b1" };

/* The map: addresses to positions. Gaps have one width each. */
struct map {
	const struct fdry_manifest *m;
	double gap, scale; /* units for each gap, and for each byte */
	uint32_t segment;  /* the search goes on here: addresses are asked for in order */
	double x;	   /* of this segment */
};

static bool gap_before(const struct fdry_manifest *m, uint32_t i)
{
	return i && m->segments[i - 1].addr + m->segments[i - 1].size != m->segments[i].addr;
}

static void map_init(struct map *map, const struct fdry_manifest *m)
{
	uint64_t bytes = 0;
	uint32_t i, gaps = 0;

	*map = (struct map){ .m = m };
	for (i = 0; i < m->n_segments; i++) {
		bytes += m->segments[i].size;
		gaps += gap_before(m, i);
	}
	map->gap = gaps * GAP > GAPS_WIDTH_MAX * HTML_WIDTH ? GAPS_WIDTH_MAX * HTML_WIDTH / gaps
							    : GAP;
	map->scale = bytes ? (HTML_WIDTH - gaps * map->gap) / (double)bytes : 0;
}

/* The position of @addr; addresses ascend from call to call. */
static double map_x(struct map *map, uint64_t addr)
{
	const struct fdry_mf_segment *s = map->m->segments;

	while (map->segment + 1 < map->m->n_segments && s[map->segment + 1].addr <= addr) {
		map->x += (double)s[map->segment].size * map->scale;
		map->segment++;
		map->x += gap_before(map->m, map->segment) ? map->gap : 0;
	}
	return map->x + (double)(addr - s[map->segment].addr) * map->scale;
}

static void rect(FILE *f, const char *class, double x, double width, int y, int height)
{
	fprintf(f, "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">", class, x,
		y, width, height);
}

static void segments_draw(const struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	uint32_t i, from;
	uint64_t bytes;
	struct map map;
	double x, end;

	map_init(&map, m);
	for (i = 0; i < m->n_segments;) {
		from = i;
		bytes = 0;
		x = map_x(&map, m->segments[i].addr);
		do {
			bytes += m->segments[i].size;
			end = map_x(&map, m->segments[i].addr) +
			      (double)m->segments[i].size * map.scale;
			i++;
		} while (i < m->n_segments && end - x < NARROW &&
			 m->segments[i].role == m->segments[from].role);
		rect(r->f, role_fill[m->segments[from].role % 3], x,
		     end - x < NARROW ? NARROW : end - x, 16, 34);
		fprintf(r->f, "<title>%s, %s from %#llx", cmd_role_name(m->segments[from].role),
			cmd_size(bytes).text, (unsigned long long)m->segments[from].addr);
		if (i - from > 1)
			fprintf(r->f, ", %u segments", i - from);
		fputs("</title></rect>\n", r->f);
	}
}

/* Content that the store holds; the rest of it is zero. */
static void chunks_draw(const struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	struct map map;
	double x, end;
	uint32_t i;

	map_init(&map, m);
	for (i = 0; i < m->n_chunks;) {
		x = map_x(&map, m->chunks[i].addr);
		end = x;
		do {
			end = map_x(&map, m->chunks[i].addr) +
			      (double)m->chunks[i].size * map.scale;
			i++;
		} while (i < m->n_chunks && map_x(&map, m->chunks[i].addr) - end < NARROW);
		rect(r->f, "fo", x, end - x < NARROW ? NARROW : end - x, 54, 8);
		fputs("</rect>\n", r->f);
	}
}

static void map_draw(const struct report *r)
{
	const struct fdry_manifest *m = &r->im.m;
	const struct fdry_mf_segment *last = &m->segments[m->n_segments - 1];

	fprintf(r->f,
		"<div class=\"picture\"><svg viewBox=\"0 0 %d 84\" role=\"img\" "
		"aria-label=\"memory map\">\n<text class=\"dimmed\" x=\"0\" y=\"10\">%#llx</text>"
		"<text class=\"dimmed\" x=\"%d\" y=\"10\" text-anchor=\"end\">%#llx</text>\n",
		HTML_WIDTH, (unsigned long long)m->segments[0].addr, HTML_WIDTH,
		(unsigned long long)(last->addr + last->size));
	segments_draw(r);
	chunks_draw(r);
	fprintf(r->f,
		"<text class=\"dimmed\" x=\"0\" y=\"78\">lower line: content that the store holds; "
		"other content is zero</text></svg></div>\n");
}

static void roles(const struct report *r)
{
	static const char *const words[] = { "content, which the image holds",
					     "scratch, which graphs write before they read it",
					     "external, which the loading program fills" };
	const struct fdry_manifest *m = &r->im.m;
	uint64_t bytes[3] = { 0 }, all = 0;
	uint32_t i;

	for (i = 0; i < m->n_segments; i++) {
		bytes[m->segments[i].role % 3] += m->segments[i].size;
		all += m->segments[i].size;
	}
	fputs("<div class=\"stack\">", r->f);
	for (i = 0; i < 3; i++)
		if (bytes[i])
			fprintf(r->f, "<i class=\"%s\" style=\"width:%.2f%%\"></i>", role_back[i],
				100.0 * (double)bytes[i] / (double)all);
	fputs("</div><div class=\"legend\">", r->f);
	for (i = 0; i < 3; i++)
		fprintf(r->f, "<span><i class=\"%s\"></i>%s: %s</span>", role_back[i], words[i],
			cmd_size(bytes[i]).text);
	fputs("</div>\n", r->f);
}

/* --- tensors --- */

static uint64_t tensor_bytes(const struct fdry_mf_tensor *t)
{
	uint64_t n = cmd_dtype_size(t->dtype);
	uint32_t i;

	for (i = 0; i < t->rank; i++)
		n *= (uint64_t)t->shape[i];
	return n;
}

static int by_size(const void *a, const void *b, void *arg)
{
	const struct fdry_mf_tensor *t = arg;
	uint64_t x = tensor_bytes(&t[*(const uint32_t *)a]),
		 y = tensor_bytes(&t[*(const uint32_t *)b]);

	if (x != y)
		return x > y ? -1 : 1;
	return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

static void tensor_row(const struct report *r, const struct fdry_mf_tensor *t, uint64_t largest)
{
	uint32_t i;

	fputs("<tr><td class=\"name\"><code>", r->f);
	html_text(r->f, fdry_manifest_str(&r->im.m, t->name));
	fprintf(r->f, "</code></td><td>%s%s</td><td>%s</td><td class=\"mono\">",
		cmd_use_name(t->use), t->flags & FDRY_TENSOR_EXTERNAL ? ", external" : "",
		cmd_dtype_name(t->dtype));
	for (i = 0; i < t->rank; i++)
		fprintf(r->f, "%s%lld", i ? " &#215; " : "", (long long)t->shape[i]);
	fputs("</td>", r->f);
	html_bar(r->f, "nodes", tensor_bytes(t), largest, cmd_size(tensor_bytes(t)).text);
	if (t->flags & FDRY_TENSOR_HOST)
		fputs("<td class=\"nowrap\">host memory</td></tr>\n", r->f);
	else
		fprintf(r->f, "<td class=\"mono nowrap\">%#llx</td></tr>\n",
			(unsigned long long)t->addr);
}

static void tensor_table(const struct report *r, const uint32_t *order, uint32_t from, uint32_t to)
{
	const struct fdry_mf_tensor *t = r->im.m.tensors;
	uint32_t i;

	fputs("<table><thead><tr><th>Tensor</th><th>Use</th><th>Type</th><th>Shape</th>"
	      "<th>Size</th><th>Address</th></tr></thead><tbody>\n",
	      r->f);
	for (i = from; i < to; i++)
		tensor_row(r, &t[order[i]], tensor_bytes(&t[order[0]]));
	fputs("</tbody></table>\n", r->f);
}

static void tensors(const struct report *r)
{
	uint32_t i, n = r->im.m.n_tensors, *order = calloc((size_t)n + 1, sizeof(*order));
	const struct report_list list = { "tensors", n, TENSORS_SHOWN, TENSORS_MAX, tensor_table };

	if (!n || !order) {
		free(order);
		return;
	}
	for (i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_size, (void *)(uintptr_t)r->im.m.tensors);
	fprintf(r->f, "<h3>%u tensor%s, by size</h3>\n", n, cmd_plural(n));
	report_list(r, &list, order);
	free(order);
}

void report_memory(struct report *r)
{
	html_section(r->f, "memory", "Memory");
	if (r->im.m.n_segments) {
		roles(r);
		map_draw(r);
	} else {
		fputs("<p class=\"dim\">The image has no device memory.</p>\n", r->f);
	}
	tensors(r);
}
