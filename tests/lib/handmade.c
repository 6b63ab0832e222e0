// SPDX-License-Identifier: Apache-2.0
/* handmade.c - see handmade.h. */
#include "tests/lib/handmade.h"

uint32_t handmade_str(struct handmade *h, const char *s)
{
	uint32_t off;

	ok(fdry_manifest_add_str(&h->w, s, &off));
	return off;
}

void handmade_put(struct fdry_buf *b, const void *data, size_t len)
{
	if (fdry_buf_put(b, data, len))
		ck_abort_msg("%s", fdry_last_error());
}

void handmade_begin(struct handmade *h)
{
	const struct fdry_driver *drv;
	struct fdry_identity here;
	int i;

	memset(h, 0, sizeof(*h));
	ok(setenv("FOUNDRY_DRIVER", test_built("foundry/sim/libcuda.so.1"), 1));
	h->store = store_make();
	ok(fdry_writer_begin(h->store, &h->writer));
	drv = test_sim_open();
	ok(fdry_identity_of(drv, 0, &here));
	fdry_driver_close(drv);
	for (i = 0; i < FDRY_IDENTITY_FACTS; i++)
		handmade_add(
			h, facts,
			{ handmade_str(h, here.fact[i].key), handmade_str(h, here.fact[i].value) });
}

void handmade_object(struct handmade *h, const void *data, size_t len)
{
	struct fdry_mf_object o = { put(h->writer, FDRY_OBJECT_KERNEL, data, len) };

	ok(fdry_buf_put(&h->w.objects, &o, sizeof(o)));
}

void handmade_bytes(struct handmade *h, struct fdry_buf *ret)
{
	const struct fdry_section_part parts[] = {
#define X(id, NAME, member, type) { id, { h->w.member.data, h->w.member.len } },
		FDRY_MF_SECTIONS(X)
#undef X
	};
	struct fdry_mf_header head = { .magic = FDRY_MF_MAGIC, .version = FDRY_MF_VERSION,
				       .base = h->w.base, .end = h->w.end };

	memset(ret, 0, sizeof(*ret));
	ok(fdry_buf_put(ret, &head, sizeof(head)));
	ok(fdry_sections_put(parts, sizeof(parts) / sizeof(parts[0]), ret, &head.sections));
	head.size = ret->len;
	memcpy(ret->data, &head, sizeof(head));
}

void handmade_install(struct handmade *h, const char *ref)
{
	const struct fdry_buf *b[] = { &h->w.objects, &h->w.graphs, &h->w.chunks,
				       &h->w.host_chunks };
	const size_t step[] = { sizeof(struct fdry_mf_object), sizeof(struct fdry_mf_graph),
				sizeof(struct fdry_mf_chunk), sizeof(struct fdry_mf_host_chunk) };
	const size_t at[] = { 0, offsetof(struct fdry_mf_graph, oid),
			      offsetof(struct fdry_mf_chunk, oid),
			      offsetof(struct fdry_mf_host_chunk, oid) };
	struct fdry_buf links = { 0 }, bytes;
	struct fdry_oid oid;
	size_t i, k;

	for (k = 0; k < 4; k++)
		for (i = 0; i < b[k]->len; i += step[k])
			handmade_put(&links, b[k]->data + i + at[k], sizeof(oid));
	handmade_bytes(h, &bytes);
	ok(fdry_writer_commit(h->writer, bytes.data, bytes.len,
			      (const struct fdry_oid *)(const void *)links.data,
			      links.len / sizeof(oid), ref, &oid, NULL));
	fdry_buf_release(&links);
	fdry_buf_release(&bytes);
	fdry_manifest_writer_release(&h->w);
	fdry_store_close(h->store);
}
