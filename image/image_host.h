/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_host.h - an image's host segments: host memory that its graphs copy from and to. A load
 * allocates them as one block of pinned memory, which every context of the process can use.
 */
#ifndef FDRY_IMAGE_IMAGE_HOST_H
#define FDRY_IMAGE_IMAGE_HOST_H

#include "image/image.h"

/* Lay out the host segments without a fixed address one after the other from @base on. @ret gets
 * the addresses of all and may be NULL. Returns the total of bytes from @base on. */
uint64_t fdry_manifest_hosts_place(const struct fdry_manifest *m, uint64_t base,
				   struct fdry_host_segment *ret);
/* Compute the sizes of the host segments from the manifest. Graph objects are checked against
 * them. */
int fdry_image_hosts_plan(struct fdry_image *img) __must_check;
/* Allocate the segments and set each byte to @fill. FDRY_E_NOMEM if so much memory cannot be
 * pinned. */
int fdry_image_hosts_make(struct fdry_image *img, int fill) __must_check;
/* Verify and write their content. No copy may still read or write them. */
int fdry_image_hosts_content(struct fdry_image *img, struct fdry_reader *reader,
			     struct fdry_content_sum *sum) __must_check;
/* Free the segments. No copy may still use them. */
void fdry_image_hosts_free(struct fdry_image *img);

/* Tensor @i of the manifest, with its address and size in this process. */
void fdry_image_tensor_get(const struct fdry_image *img, uint32_t i, struct fdry_tensor *ret);

#endif
