// SPDX-License-Identifier: Apache-2.0
/* image_host.c - host segments of a loaded image; see image_host.h. */
#include "image/image_host.h"

#include "image/capacity.h"
#include "image/check.h"
#include "image/image_pinned.h"

#include <stdlib.h>
#include <string.h>

uint64_t fdry_manifest_hosts_place(const struct fdry_manifest *m, uint64_t base,
				   struct fdry_host_segment *ret)
{
	uint64_t at = 0; /* cannot overflow: at most 2^20 segments of 2^40 bytes */
	uint32_t i;

	for (i = 0; i < m->n_hosts; i++) {
		const struct fdry_mf_host *h = &m->hosts[i];
		uint64_t fixed = fdry_manifest_host_place(m, i);

		if (fixed) {
			if (ret)
				ret[i].addr = fixed;
			continue;
		}
		at = (at + h->align - 1) & ~(uint64_t)(h->align - 1);
		if (ret)
			ret[i].addr = base + at;
		at += h->size;
	}
	return at;
}

int fdry_image_hosts_plan(struct fdry_image *img)
{
	uint32_t i;
	int err;

	if (!img->m.n_hosts)
		return 0;
	err = fdry_budget_take(&img->budget, fdry_manifest_hosts_place(&img->m, 0, NULL),
			       "pinned host memory");
	if (err)
		return err;
	img->hosts = calloc(img->m.n_hosts, sizeof(*img->hosts));
	if (!img->hosts)
		return fdry_nomem();
	for (i = 0; i < img->m.n_hosts; i++)
		img->hosts[i].size = img->m.hosts[i].size;
	return 0;
}

int fdry_image_hosts_make(struct fdry_image *img, int fill)
{
	uint64_t bytes = fdry_manifest_hosts_place(&img->m, 0, NULL);
	void *block;
	int err;

	if (!bytes) {
		(void)fdry_manifest_hosts_place(&img->m, 0, img->hosts);
		return 0;
	}
	/* The driver returns whole pages, and no segment needs a larger alignment. */
	err = fdry_call(img->drv, cuMemHostAlloc, &block, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE);
	if (err == -FDRY_E_NODEVMEM)
		return fdry_fail(
			FDRY_E_NOMEM,
			"the image needs %llu bytes of pinned host memory, and the driver "
			"has not enough; free some, or allow the process more locked memory",
			(unsigned long long)bytes);
	if (err)
		return err;
	img->host = block;
	memset(block, fill, (size_t)bytes);
	(void)fdry_manifest_hosts_place(&img->m, (uintptr_t)block, img->hosts);
	return 0;
}

void fdry_image_hosts_free(struct fdry_image *img)
{
	if (img->host)
		(void)fdry_call_raw(img->drv, cuMemFreeHost, img->host);
	img->host = NULL;
}

static int chunk_write(struct fdry_image *img, struct fdry_reader *reader, uint32_t i,
		       struct fdry_content_sum *sum)
{
	const struct fdry_mf_host_chunk *c = &img->m.host_chunks[i];
	struct fdry_span bytes = { .len = c->size };
	int err = fdry_chunk_map(img, reader, &c->oid, sum, &bytes);

	if (err)
		goto out_name;
	if (fdry_manifest_host_place(&img->m, c->segment)) {
		err = (img->m.n_host_fingerprints
			       ? fdry_chunk_check(img, reader, &c->oid, bytes,
						  img->m.host_fingerprints[i])
			       : 0) ?:
		      fdry_image_pinned_write(img, img->hosts[c->segment].addr + c->offset,
					      bytes.data, bytes.len);
	} else {
		memcpy((void *)(uintptr_t)(img->hosts[c->segment].addr + c->offset), bytes.data,
		       bytes.len);
		err = fdry_host_chunk_check(img, reader, i);
	}
	if (err)
		goto out_name;
	sum->checked += img->m.n_host_fingerprints ? c->size : 0;
	return 0;
out_name:
	return fdry_fail_at(err, "content of host segment %u at %#llx", c->segment,
			    (unsigned long long)c->offset);
}

int fdry_image_hosts_content(struct fdry_image *img, struct fdry_reader *reader,
			     struct fdry_content_sum *sum)
{
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_host_chunks; i++) {
		err = chunk_write(img, reader, i, sum);
		if (err)
			return err;
	}
	return 0;
}

void fdry_image_tensor_get(const struct fdry_image *img, uint32_t i, struct fdry_tensor *ret)
{
	const struct fdry_capacity *capacity = fdry_capacity_of(&img->capacities, i);

	fdry_manifest_tensor_get(&img->m, &img->m.tensors[i], ret);
	if (capacity)
		fdry_capacity_shape(capacity, ret);
	if (ret->flags & FDRY_TENSOR_HOST)
		ret->addr =
			img->hosts[fdry_host_segment(ret->addr)].addr + fdry_host_offset(ret->addr);
}
