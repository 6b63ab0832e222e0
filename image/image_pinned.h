/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_pinned.h - an image's pinned allocations: host memory that its graphs use at the addresses
 * of the capturing process. A load maps and registers it there (mm/host_map.h), or claims it among
 * the pinned memory of a live capture.
 */
#ifndef FDRY_IMAGE_IMAGE_PINNED_H
#define FDRY_IMAGE_IMAGE_PINNED_H

#include "image/image.h"

/* Bytes of all pinned allocations. */
uint64_t fdry_manifest_pinned_bytes(const struct fdry_manifest *m);

/* Make the allocations, which are zero. Context: the image's. FDRY_E_TAKEN names the mapping that
 * is at one of the addresses; FDRY_E_LAYOUT: the process has other pinned memory there;
 * FDRY_E_NOMEM, FDRY_E_LIMIT, FDRY_E_DRIVER. */
int fdry_image_pinned_make(struct fdry_image *img) __must_check;
/* Set each byte that is no content to @fill. */
void fdry_image_pinned_fill(struct fdry_image *img, int fill);
/* Verify and write their content, zeros included. No work may still use the memory. */
int fdry_image_pinned_content(struct fdry_image *img, struct fdry_reader *reader,
			      struct fdry_content_sum *sum) __must_check;
/* Write @len bytes of content that lies in a pinned allocation, or in its first page before it.
 * FDRY_E_CORRUPT if other bytes arrived. */
int fdry_image_pinned_write(struct fdry_image *img, uint64_t addr, const uint8_t *bytes,
			    size_t len) __must_check;
/* Undo fdry_image_pinned_make(). No work may still use the memory. */
void fdry_image_pinned_free(struct fdry_image *img);

#endif
