/* SPDX-License-Identifier: Apache-2.0 */
/* dot.h - pictures of graphs. */
#ifndef FDRY_API_CMD_DOT_H
#define FDRY_API_CMD_DOT_H

#include "image/manifest.h"
#include "graph/codec.h"

/* Write the graph in Graphviz's language to @ret, which is empty before and released by the
 * caller. A NUL that is not counted follows the text. @m names the kernels. */
int cmd_dot(const struct fdry_manifest *m, const struct fdry_graph_view *v, const char *title,
	    struct fdry_buf *ret) __must_check;
/* Let dot draw the text of cmd_dot() as SVG, into @fd. FDRY_E_IO: dot is not installed, or it
 * failed. */
int cmd_svg(struct fdry_span dot, int fd) __must_check;

/*
 * Append the name inside of a mangled name: at::native::fill_kernel for
 * _ZN2at6native9fill_kernelEv. Names of other forms are appended unchanged.
 */
int cmd_short_name(const char *name, struct fdry_buf *out) __must_check;

#endif
