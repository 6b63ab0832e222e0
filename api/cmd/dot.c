// SPDX-License-Identifier: Apache-2.0
/*
 * dot.c - writes a graph in Graphviz's language, nodes coloured by kind, or as SVG, which
 * Graphviz's program dot draws.
 */
#include "api/cmd/dot.h"

#include <ctype.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"
#include "graph/subgraph.h"
#include "lib/printable.h"

/* Colours light enough for black letters. */
static const char *const colours[FDRY_NODE_KINDS] = {
	[FDRY_NODE_KERNEL] = "#a6cee3", [FDRY_NODE_MEMSET] = "#fdbf6f",
	[FDRY_NODE_MEMCPY] = "#b2df8a", [FDRY_NODE_EMPTY] = "#dddddd",
	[FDRY_NODE_RECORD] = "#cab2d6", [FDRY_NODE_WAIT] = "#fb9a99",
	[FDRY_NODE_CHILD] = "#ffff99",	 [FDRY_NODE_HOST] = "#fddaec",
	[FDRY_NODE_MEMOP] = "#decbe4",	 [FDRY_NODE_CONDITIONAL] = "#e5d8bd",
	[FDRY_NODE_SIGNAL] = "#b3cde3",	 [FDRY_NODE_AWAIT] = "#fbb4ae",
};

int cmd_short_name(const char *name, struct fdry_buf *out)
{
	const char *p = name + (strncmp(name, "_ZN", 3) ? 2 : 3);
	size_t n, parts = 0, before = out->len;
	int err = 0;

	if (strncmp(name, "_Z", 2))
		return fdry_buf_printf(out, "%s", name);
	while (isdigit((unsigned char)*p) && !err) {
		for (n = 0; isdigit((unsigned char)*p) && n < 10000; p++)
			n = n * 10 + (size_t)(*p - '0');
		if (n > strlen(p))
			break;
		err = fdry_buf_printf(out, "%s%.*s", parts++ ? "::" : "", (int)n, p);
		p += n;
	}
	if (err || parts)
		return err;
	out->len = before;
	return fdry_buf_printf(out, "%s", name);
}

/* Append text inside of quotes: made printable, then escaped for Graphviz. */
static int quoted(const char *text, struct fdry_buf *out)
{
	struct fdry_buf shown = { 0 };
	const char *s;
	int err = fdry_buf_printable(&shown, text);

	for (s = (const char *)shown.data; !err && *s; s++)
		err = fdry_buf_printf(out, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
	fdry_buf_release(&shown);
	return err;
}

static int kernel_label(const struct fdry_manifest *m, const struct fdry_node_kernel *k,
			struct fdry_buf *out)
{
	struct fdry_buf name = { 0 };
	int err = 0;

	if (k->kernel < m->n_kernels)
		err = cmd_short_name(fdry_manifest_str(m, m->kernels[k->kernel].name), &name);
	err = err ?: quoted(name.len ? (const char *)name.data : "kernel", out) ?:
	      fdry_buf_printf(out, "\\n%u x %u x %u blocks of %u x %u x %u", k->launch.grid[0],
			      k->launch.grid[1], k->launch.grid[2], k->launch.block[0],
			      k->launch.block[1], k->launch.block[2]);
	fdry_buf_release(&name);
	return err;
}

static int label(const struct fdry_manifest *m, const struct fdry_node *n, struct fdry_buf *out)
{
	const char *name = fdry_node_ops(n->kind)->name;
	struct fdry_graph_semaphore s;
	struct fdry_span of;
	size_t at = 0;
	int err;

	switch (n->kind) {
	case FDRY_NODE_KERNEL:
		return kernel_label(m, &n->kernel, out);
	case FDRY_NODE_MEMSET:
		return fdry_buf_printf(
			out, "%s\\n%llu bytes at %#llx", name,
			(unsigned long long)(n->memset.width * n->memset.element_size *
					     n->memset.height),
			(unsigned long long)n->memset.dst);
	case FDRY_NODE_MEMCPY:
		return fdry_buf_printf(
			out, "%s\\n%llu bytes", name,
			(unsigned long long)(n->memcpy.width * n->memcpy.height * n->memcpy.depth));
	case FDRY_NODE_RECORD:
	case FDRY_NODE_WAIT:
		return fdry_buf_printf(out, "%s %u", name, n->event);
	case FDRY_NODE_HOST: /* its characters need no quoting */
		return fdry_buf_printf(out, "%s\\n%.*s", name, (int)n->host.len, n->host.data);
	case FDRY_NODE_SIGNAL:
	case FDRY_NODE_AWAIT:
		err = fdry_buf_printf(out, "%s", name);
		while (!err && fdry_node_semaphore(n, &at, &s, &of))
			err = fdry_buf_printf(out, "\\n%.*s %llu", (int)of.len, of.data,
					      (unsigned long long)s.value);
		return err;
	case FDRY_NODE_CHILD:
		return fdry_buf_printf(out, "%s\\n%u nodes from %u", name, n->child.nodes,
				       n->child.first);
	case FDRY_NODE_CONDITIONAL:
		return fdry_buf_printf(out, "%s\\n%u bodies, handle %u", name,
				       n->conditional.c.size, n->conditional.c.handle);
	default:
		return fdry_buf_printf(out, "%s", name);
	}
}

static int nodes_text(const struct fdry_manifest *m, const struct fdry_graph_view *v,
		      struct fdry_buf *out)
{
	struct fdry_graph_cursor c;
	struct fdry_node n;
	int err = fdry_graph_cursor_init(v, &c);

	if (err)
		return err;
	while (!err && fdry_graph_next(&c, &n))
		err = fdry_buf_printf(out, "\t%u [fillcolor=\"%s\", label=\"%u: ", c.node - 1,
				      colours[n.kind], c.node - 1) ?:
		      label(m, &n, out) ?: fdry_buf_printf(out, "\"]\n");
	fdry_graph_cursor_release(&c);
	return err;
}

/* A dotted line leads from a child graph node to the first node of its graph. */
static int subgraphs_text(const struct fdry_graph_view *v, struct fdry_buf *out)
{
	struct fdry_graph_subgraph s;
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < v->header.subgraphs; i++) {
		s = fdry_graph_subgraph_at(v, i);
		if (s.first < fdry_graph_end(v, i + 1))
			err = fdry_buf_printf(out, "\t%u -> %u [style=dotted]\n", s.owner, s.first);
	}
	return err;
}

static int edges_text(const struct fdry_graph_view *v, struct fdry_buf *out)
{
	struct fdry_graph_edges edges = { .v = v };
	struct fdry_graph_edge e;
	int err = 0;

	/* Edges with data, such as those of programmatic launch, are dashed. */
	while (!err && fdry_graph_edge_next(&edges, &e))
		err = fdry_buf_printf(out, "\t%u -> %u%s\n", e.from, e.to,
				      e.index ? " [style=dashed]" : "");
	return err;
}

int cmd_dot(const struct fdry_manifest *m, const struct fdry_graph_view *v, const char *title,
	    struct fdry_buf *ret)
{
	struct fdry_buf out = { 0 };
	int err = fdry_buf_printf(&out, "digraph \"") ?: quoted(title, &out) ?:
		  fdry_buf_printf(&out, "\" {\n\tnode [shape=box, style=\"filled,rounded\", "
					"fontname=\"sans-serif\", fontsize=10]\n") ?:
		  nodes_text(m, v, &out) ?: edges_text(v, &out) ?:
		  subgraphs_text(v, &out) ?: fdry_buf_printf(&out, "}\n");

	if (err) {
		fdry_buf_release(&out);
		return err;
	}
	*ret = out;
	return 0;
}

/* --- SVG --- */

static int dot_missing(void)
{
	return fdry_fail(FDRY_E_IO, "the program dot, which draws SVG, is not installed; install "
				    "graphviz, or use --format dot");
}

static int dot_spawn(int in, int out, pid_t *ret)
{
	static char *const argv[] = { "dot", "-Tsvg", NULL };
	posix_spawn_file_actions_t a;
	int e;

	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_adddup2(&a, in, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&a, out, STDOUT_FILENO);
	e = posix_spawnp(ret, argv[0], &a, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&a);
	if (e == ENOENT)
		return dot_missing();
	return e ? fdry_fail(FDRY_E_IO, "cannot run dot: %s", strerror(e)) : 0;
}

static int file_of(struct fdry_span text, FILE **ret)
{
	int fd = fdry_memfd("foundry-dot");
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w+");

	if (!f && fd >= 0)
		close(fd);
	if (f && (fwrite(text.data, 1, text.len, f) < text.len || fflush(f))) {
		fclose(f);
		f = NULL;
	}
	if (!f)
		return fdry_fail(FDRY_E_IO, "cannot write a temporary file: %s", strerror(errno));
	rewind(f);
	*ret = f;
	return 0;
}

int cmd_svg(struct fdry_span dot, int fd)
{
	FILE *in = NULL;
	int status = 0, err = file_of(dot, &in);
	pid_t child;

	if (err)
		return err;
	err = dot_spawn(fileno(in), fd, &child);
	while (!err && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	fclose(in);
	if (err)
		return err;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return dot_missing();
	if (status)
		return fdry_fail(FDRY_E_IO, "dot failed; its message stands above");
	return 0;
}
