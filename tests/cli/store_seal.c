// SPDX-License-Identifier: Apache-2.0
/*
 * store_seal STORE REF - seal the image that lines on standard input describe, and print its id.
 *REF "-" is none.
 *
 * For tests of foundry-store: images with every kind of content, without a GPU, and images that
 * differ in one line. Facts, tensors and graphs must come in their order.
 *
 *	fact KEY VALUE
 *	content FILE               the next MiB, and a chunk of the file's bytes
 *	tensor NAME AT COUNT       float, of that many elements, AT bytes into the region
 *	kernel NAME CODE BYTES     an object that is the text CODE; bytes of its one parameter
 *	graph KEY NAME FILE        text as foundry-store graph writes it
 *
 * %XX in a key, value or name is the byte of that number.
 */
#include <stdio.h>
#include <stdlib.h>

#include "image/manifest.h"
#include "graph/graph.h"
#include "mm/region.h"
#include "store/store.h"
#include "tests/lib/need.h"

#define BASE 0x500000000000ull
#define ROOM 0x100000ull

static struct fdry_manifest_writer w = { .base = BASE, .end = BASE + 64 * ROOM };
static struct fdry_writer *writer;
static uint32_t contents;

static struct fdry_span read_file(const char *name)
{
	static uint8_t bytes[ROOM];
	FILE *f = fopen(name, "rb");
	size_t n = f ? fread(bytes, 1, sizeof(bytes), f) : 0;

	if (!f) {
		perror(name);
		exit(1);
	}
	fclose(f);
	return (struct fdry_span){ bytes, n };
}

/* Adds a string in which %XX stands for the byte of that number. */
static uint32_t str(const char *s)
{
	char text[256], *to = text;
	unsigned int byte;
	uint32_t ret = 0;
	int n;

	for (; *s; s += n) {
		n = 1;
		if (*s == '%' && sscanf(s, "%%%2x%n", &byte, &n) == 1)
			*to++ = (char)byte;
		else
			*to++ = *s;
	}
	*to = 0;
	must(fdry_manifest_add_str(&w, text, &ret));
	return ret;
}

static void add_fact(const char *key, const char *value)
{
	struct fdry_mf_fact f = { .key = str(key) };

	f.value = str(value);
	must(fdry_buf_put(&w.facts, &f, sizeof(f)));
}

static void add_content(const char *file)
{
	struct fdry_mf_segment s = { BASE, ++contents * ROOM, FDRY_ROLE_CONTENT,
				     0 }; /* neighbours are one */
	struct fdry_mf_chunk c = { .addr = BASE + (contents - 1) * ROOM };
	struct fdry_span bytes = read_file(file);

	must(fdry_writer_add_object(writer, FDRY_OBJECT_CHUNK, bytes.data, bytes.len, NULL, 0,
				    &c.oid));
	c.size = bytes.len;
	w.segments.len = 0;
	must(fdry_buf_put(&w.segments, &s, sizeof(s)));
	must(fdry_buf_put(&w.chunks, &c, sizeof(c)));
}

static void add_tensor(const char *name, uint64_t at, int64_t count)
{
	struct fdry_mf_tensor t = { .name = str(name), .dtype = FDRY_F32, .use = FDRY_USE_CONST,
				    .rank = 1, .addr = BASE + at, .shape = { count },
				    .stride = { 1 } };

	must(fdry_buf_put(&w.tensors, &t, sizeof(t)));
}

static void add_kernel(const char *name, const char *code, uint32_t bytes)
{
	struct fdry_mf_kernel k = {
		.name = str(name),
		.object = (uint32_t)(w.objects.len / sizeof(struct fdry_mf_object)),
		.param_first = (uint32_t)(w.params.len / sizeof(struct fdry_mf_param)),
		.param_count = 1, .param_bytes = bytes
	};
	struct fdry_mf_param p = { 0, (uint16_t)bytes };
	struct fdry_mf_object o;

	must(fdry_writer_add_object(writer, FDRY_OBJECT_KERNEL, code, strlen(code), NULL, 0,
				    &o.oid));
	must(fdry_buf_put(&w.objects, &o, sizeof(o)));
	must(fdry_buf_put(&w.params, &p, sizeof(p)));
	must(fdry_buf_put(&w.kernels, &k, sizeof(k)));
}

static void add_graph(uint64_t key, const char *name, const char *file)
{
	struct fdry_mf_graph g = { .key = key, .name = str(name) };
	struct fdry_buf bytes = { 0 };
	struct fdry_graph_view v;

	must(fdry_graph_from_text(read_file(file), &bytes));
	must(fdry_graph_view_init((struct fdry_span){ bytes.data, bytes.len }, &v));
	must(fdry_writer_add_object(writer, FDRY_OBJECT_GRAPH, bytes.data, bytes.len, NULL, 0,
				    &g.oid));
	g.nodes = v.header.nodes;
	must(fdry_buf_put(&w.graphs, &g, sizeof(g)));
	fdry_buf_release(&bytes);
}

static bool add_line(const char *line)
{
	char a[256], b[256], c[256];

	if (sscanf(line, "fact %255s %255s", a, b) == 2)
		add_fact(a, b);
	else if (sscanf(line, "content %255s", a) == 1)
		add_content(a);
	else if (sscanf(line, "tensor %255s %255s %255s", a, b, c) == 3)
		add_tensor(a, strtoull(b, NULL, 0), atoll(c));
	else if (sscanf(line, "kernel %255s %255s %255s", a, b, c) == 3)
		add_kernel(a, b, (uint32_t)atoi(c));
	else if (sscanf(line, "graph %255s %255s %255s", a, b, c) == 3)
		add_graph(strtoull(a, NULL, 0), b, c);
	else
		return *line == '\n';
	return true;
}

static struct fdry_oid seal(const char *ref)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_oid id, *links;
	struct fdry_manifest m;
	size_t n;

	must(fdry_manifest_encode(&w, &bytes));
	must(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m));
	must(fdry_manifest_links(&m, &links, &n));
	must(fdry_writer_commit(writer, bytes.data, bytes.len, links, n, ref, &id, NULL));
	free(links);
	fdry_buf_release(&bytes);
	fdry_manifest_writer_release(&w);
	return id;
}

int main(int argc, char **argv)
{
	char hex[FDRY_OID_HEX_SIZE], line[1024];
	struct fdry_store *s;
	struct fdry_oid id;

	if (argc != 3)
		return 2;
	must(fdry_store_open(argv[1], FDRY_STORE_CREATE, &s));
	must(fdry_writer_begin(s, &writer));
	while (fgets(line, sizeof(line), stdin))
		if (!add_line(line)) {
			fprintf(stderr, "store_seal: what is this? %s", line);
			return 1;
		}
	id = seal(argv[2][0] == '-' ? NULL : argv[2]);
	printf("%s\n", fdry_oid_hex(&id, hex));
	fdry_store_close(s);
	return 0;
}
