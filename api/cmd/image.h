/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - an image's manifest and graphs, read for a command. */
#ifndef FDRY_API_CMD_IMAGE_H
#define FDRY_API_CMD_IMAGE_H

#include "image/manifest.h"
#include "graph/codec.h"
#include "store/store.h"

/* A manifest with its bytes; does not need the session any more. */
struct cmd_image {
	struct fdry_oid oid;
	struct fdry_buf bytes;
	struct fdry_manifest m;
};
int cmd_image_open(struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct cmd_image *ret) __must_check;
void cmd_image_close(struct cmd_image *im);
/* Nodes of all graphs. */
uint64_t cmd_image_nodes(const struct fdry_manifest *m);
/* "content" and so on. */
const char *cmd_role_name(uint32_t role);
const char *cmd_use_name(uint32_t use);
const char *cmd_dtype_name(uint32_t dtype);
/* Bytes of an element; 0 for what is no type. */
uint64_t cmd_dtype_size(uint32_t dtype);
/* Most bytes of a tensor that has room; 0: it has none. */
uint64_t cmd_room_of(const struct fdry_manifest *m, uint32_t tensor);
/* The first further attribute of a kernel, or of one behind it. */
uint32_t cmd_attrs_of(const struct fdry_manifest *m, uint32_t kernel);
/* "F32 const 0x500000000000 [8:4 4:1]", without the name. */
void cmd_tensor_text(const struct fdry_mf_tensor *t, char *ret, size_t len);

/* What the image says of itself, as an object under the key "image". */
struct json;
void cmd_image_json(struct json *j, const struct fdry_manifest *m);

/* The same of a graph object. */
struct cmd_graph_object {
	struct fdry_oid oid;
	struct fdry_buf bytes;
	struct fdry_graph_view view;
};
int cmd_graph_open(struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct cmd_graph_object *ret) __must_check;
void cmd_graph_close(struct cmd_graph_object *g);

#endif
