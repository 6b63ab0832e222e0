// SPDX-License-Identifier: Apache-2.0
/* graph.c - writes one of an image's graphs as text, complete: nodes, edges, arguments. */
#include "api/cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>

#include "api/manifest.h"
#include "graph/graph.h"

static int graph_text(struct fdry_get *get, const struct fdry_oid *oid, struct fdry_buf *text)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_graph_view view;
	int err;

	err = fdry_get_object(get, oid, &bytes);
	if (!err)
		err = fdry_graph_view_open((struct fdry_span){ bytes.data, bytes.len }, &view);
	if (!err)
		err = fdry_graph_to_text(&view, NULL, 0, text);
	fdry_buf_release(&bytes);
	return err;
}

static int image_graph_text(struct fdry_get *get, const struct fdry_oid *image, uint64_t key, struct fdry_buf *text)
{
	const struct fdry_mf_graph *g;
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	int err;

	err = fdry_get_object(get, image, &bytes);
	if (!err)
		err = fdry_manifest_open((struct fdry_span){ bytes.data, bytes.len }, &m);
	if (!err) {
		g = fdry_manifest_graph(&m, key);
		err = g ? graph_text(get, &g->oid, text) :
			  fdry_fail(FDRY_E_NOKEY, "the image has no graph with key %llu; see foundry-store show",
				    (unsigned long long)key);
	}
	fdry_buf_release(&bytes);
	return err;
}

static int key_parse(const char *arg, uint64_t *ret)
{
	unsigned long long key;
	char *end;

	errno = 0;
	key = strtoull(arg, &end, 10);
	if (end == arg || *end || errno || *arg == '-')
		return fdry_fail(FDRY_E_INVAL, "'%.80s' is not a graph's key; give a number as foundry-store show has it", arg);
	*ret = key;
	return 0;
}

int cmd_graph(const struct cmd_args *a, struct fdry_store *s)
{
	struct fdry_buf text = { 0 };
	struct fdry_oid image;
	struct fdry_get *get;
	uint64_t key = 0;
	int err;

	err = key_parse(a->argv[1], &key);
	if (!err)
		err = fdry_store_resolve(s, a->argv[0], &image);
	if (!err)
		err = fdry_get_begin(s, &get);
	if (err)
		return cmd_fail();
	err = image_graph_text(get, &image, key, &text);
	fdry_get_end(get);
	if (err)
		return cmd_fail();
	fwrite(text.data, 1, text.len, stdout);
	fdry_buf_release(&text);
	return CMD_OK;
}
