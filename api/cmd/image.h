/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - reads an image's manifest and graphs, and names their parts. */
#ifndef FDRY_API_CMD_IMAGE_H
#define FDRY_API_CMD_IMAGE_H

#include "image/manifest.h"
#include "graph/codec.h"
#include "store/store.h"

/* A manifest with its bytes; it stays valid after the read session ends. */
struct cmd_image {
	struct fdry_oid oid;
	struct fdry_buf bytes;
	struct fdry_manifest m;
};
int cmd_image_open(struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct cmd_image *ret) __must_check;
void cmd_image_close(struct cmd_image *im);
/* Returns the number of nodes of all graphs. */
uint64_t cmd_image_nodes(const struct fdry_manifest *m);
/* Returns "content" and so on. */
const char *cmd_role_name(uint32_t role);
const char *cmd_use_name(uint32_t use);
const char *cmd_dtype_name(uint32_t dtype);
/* Returns the bytes of an element, 0 for an unknown type. */
uint64_t cmd_dtype_size(uint32_t dtype);
/* Returns the capacity of a tensor that can grow, in bytes; 0: it cannot grow. */
uint64_t cmd_capacity_of(const struct fdry_manifest *m, uint32_t tensor);
/* Returns the index of the kernel's first further attribute, or else of a later kernel's. */
uint32_t cmd_attrs_of(const struct fdry_manifest *m, uint32_t kernel);
/* Write "F32 const 0x500000000000 [8:4 4:1]", without the name. */
void cmd_tensor_text(const struct fdry_mf_tensor *t, char *ret, size_t len);

/* Write the description of the image, as an object under the key "image". */
struct json;
void cmd_image_json(struct json *j, const struct fdry_manifest *m);

/* The same for a graph object. */
struct cmd_graph_object {
	struct fdry_oid oid;
	struct fdry_buf bytes;
	struct fdry_graph_view view;
};
int cmd_graph_open(struct fdry_reader *reader, const struct fdry_oid *oid,
		   struct cmd_graph_object *ret) __must_check;
void cmd_graph_close(struct cmd_graph_object *g);

#endif
