/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_host.h - an image's host segments in a loading process: one block of pinned memory,
 * which every context of the process may copy from and to.
 */
#ifndef FDRY_IMAGE_IMAGE_HOST_H
#define FDRY_IMAGE_IMAGE_HOST_H

#include "image/image.h"

/* Lay the host segments out behind each other from @base on: their addresses into @ret, NULL:
 * nowhere. Gives the bytes of all. */
uint64_t fdry_manifest_hosts_place(const struct fdry_manifest *m, uint64_t base,
				   struct fdry_host_segment *ret);
/* Sizes of the host segments, of an image whose manifest is open: what graph objects are checked
 * against. */
int fdry_image_hosts_plan(struct fdry_image *img) __must_check;
/* Allocate them, each byte @fill. FDRY_E_NOMEM if so much cannot be pinned. */
int fdry_image_hosts_make(struct fdry_image *img, int fill) __must_check;
/* Write their content, verified; whatever copies from them must have ended. */
int fdry_image_hosts_content(struct fdry_image *img, struct fdry_reader *reader,
			     struct fdry_content_sum *sum) __must_check;
/* Undo the making; nothing may be copying. */
void fdry_image_hosts_free(struct fdry_image *img);

/* Tensor @i of the manifest, with its address and size in this process. */
void fdry_image_tensor_get(const struct fdry_image *img, uint32_t i, struct fdry_tensor *ret);

#endif
