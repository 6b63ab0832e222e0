/* SPDX-License-Identifier: Apache-2.0 */
/* dot.h - pictures of graphs. */
#ifndef FDRY_API_CMD_DOT_H
#define FDRY_API_CMD_DOT_H

#include "image/manifest.h"
#include "graph/codec.h"

/* The graph in Graphviz's language; @ret is empty before and released by the caller, a terminator
 * behind the text is not counted. Kernels are named as @m has them. */
int cmd_dot(const struct fdry_manifest *m, const struct fdry_graph_view *v, const char *title,
	    struct fdry_buf *ret) __must_check;
/* Have dot draw what cmd_dot() gave as SVG, into @fd. FDRY_E_IO where there is no dot, or it fails.
 */
int cmd_svg(struct fdry_span dot, int fd) __must_check;

#endif
