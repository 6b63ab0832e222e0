/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.h - argument blocks in columns; see args.c. Internal to graph/.
 */
#ifndef FDRY_GRAPH_ARGS_H
#define FDRY_GRAPH_ARGS_H

#include "graph/codec.h"

/* Append the arguments of the next kernel node. @kernel: an index into the graph's kernels; all
 * nodes of a kernel have @args.len bytes. */
int fdry_args_put(struct fdry_graph_enc *enc, uint32_t kernel, struct fdry_span args) __must_check;
/*
 * Check the columns of arguments; those of configurations must be checked already. FDRY_E_BADIMAGE.
 */
int fdry_args_check(const struct fdry_graph_view *v) __must_check;
/* Decode the argument block of kernel node @i. Callers must decode the nodes in order. @bytes: size
 * of its kernel's parameters. */
const uint8_t *fdry_args_get(struct fdry_graph_cursor *c, uint32_t i, uint32_t bytes);

#endif
