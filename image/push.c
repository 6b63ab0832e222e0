// SPDX-License-Identifier: Apache-2.0
/*
 * push.c - implements fdry_store_push(): refuses images with content that was not declared
 * constant.
 *
 * Images with files are refused as well: nobody has said what they hold.
 *
 * Bytes of content count as declared if they lie in a tensor of use FDRY_USE_CONST, or are zero;
 * those of arrays only if they are zero. Other bytes may be data of the program that sealed the
 * image, such as prompts in a KV cache.
 */
#include <stdio.h>
#include <stdlib.h>

#include "foundry.h"
#include "graph/host.h"
#include "image/array_pieces.h"
#include "image/tensor.h"
#include "lib/search.h"
#include "registry/registry.h"

struct range {
	uint64_t addr, end;
};

/* What an image carries beside its constants. */
struct content {
	struct fdry_reader *reader;
	struct fdry_buf constants; /* struct range each, ascending, apart */
	uint64_t undeclared;       /* bytes that are not zero */
	uint64_t first;            /* address of the first one, or its place */
	const char *variable;      /* the module variable that has the first one, or NULL */
};

/* Sort them, and join those that touch. */
static void ranges_join(struct fdry_buf *ranges)
{
	struct range *r = (void *)ranges->data;
	size_t i, k = 0, n = ranges->len / sizeof(*r);

	if (!n)
		return;
	qsort(r, n, sizeof(*r), fdry_u64_cmp); /* by address */
	for (i = 1; i < n; i++) {
		if (r[i].addr > r[k].end)
			r[++k] = r[i];
		else if (r[i].end > r[k].end)
			r[k].end = r[i].end;
	}
	ranges->len = (k + 1) * sizeof(*r);
}

static int constants_list(const struct fdry_manifest *m, struct fdry_buf *ret)
{
	struct fdry_tensor t;
	struct range r;
	uint64_t extent;
	uint32_t i;
	int err = 0;

	for (i = 0; i < m->n_tensors && !err; i++) {
		if (m->tensors[i].use != FDRY_USE_CONST)
			continue;
		fdry_manifest_tensor_get(m, &m->tensors[i], &t);
		err = fdry_tensor_extent(&t, &extent);
		r = (struct range){ m->tensors[i].addr, m->tensors[i].addr + extent };
		err = err ?: fdry_buf_put(ret, &r, sizeof(r));
	}
	ranges_join(ret);
	return err;
}

static void bytes_count(struct content *c, const uint8_t *bytes, uint64_t addr, uint64_t end)
{
	uint64_t at;

	for (at = addr; at < end; at++, bytes++) {
		if (!*bytes)
			continue;
		if (!c->undeclared)
			c->first = at;
		c->undeclared++;
	}
}

/* The end of the constant bytes that begin at @addr; @addr if there are none. @next: where the next
 * ones begin, at most @end. */
static uint64_t constant_end(const struct content *c, uint64_t addr, uint64_t end, uint64_t *next)
{
	const struct range *r = (const void *)c->constants.data;
	size_t n = c->constants.len / sizeof(*r), low = fdry_lower_bound(i, n, r[i].end <= addr);

	if (low < n && r[low].addr <= addr)
		addr = r[low++].end;
	*next = low < n && r[low].addr < end ? r[low].addr : end;
	return addr < end ? addr : end;
}

static int chunk_count(struct content *c, uint64_t addr, uint64_t size, const struct fdry_oid *oid)
{
	uint64_t end = addr + size, next, at = constant_end(c, addr, end, &next);
	struct fdry_buf bytes = { 0 };
	int err;

	if (at == end)
		return 0;
	err = fdry_reader_copy(c->reader, oid, &bytes);
	if (err)
		goto out_release;
	if (bytes.len != size) {
		err = fdry_fail(FDRY_E_BADIMAGE, "a chunk of the image does not have the size that "
				"its manifest states");
		goto out_release;
	}
	for (; at < end; at = constant_end(c, next, end, &next))
		bytes_count(c, bytes.data + (at - addr), at, next);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

/* No array is declared as constant. */
static int piece_count(struct content *c, const struct fdry_manifest *m,
		       const struct fdry_mf_array_piece *p)
{
	struct fdry_cuarray a = fdry_cuarray_of(&m->arrays[p->array]);
	struct fdry_cuarray_piece piece = fdry_cuarray_piece(&a, p->piece);

	return chunk_count(c, fdry_cuarray_place(p->array, 0), piece.bytes, &p->oid);
}

/* The value of a module variable, which a program may have written. */
static int variable_count(struct content *c, const struct fdry_manifest *m,
			  const struct fdry_mf_variable *v)
{
	bool first = !c->undeclared;
	int err = chunk_count(c, 0, v->size, &v->oid);

	if (first && c->undeclared)
		c->variable = fdry_manifest_str(m, v->name);
	return err;
}

static int chunks_count(struct content *c, const struct fdry_manifest *m)
{
	uint64_t place;
	uint32_t i;
	int err = constants_list(m, &c->constants);

	for (i = 0; i < m->n_chunks && !err; i++)
		err = chunk_count(c, m->chunks[i].addr, m->chunks[i].size, &m->chunks[i].oid);
	for (i = 0; i < m->n_host_chunks && !err; i++) {
		place = fdry_host_place(m->host_chunks[i].segment, m->host_chunks[i].offset);
		err = chunk_count(c, place, m->host_chunks[i].size, &m->host_chunks[i].oid);
	}
	for (i = 0; i < m->n_pinned_chunks && !err; i++)
		err = chunk_count(c, m->pinned_chunks[i].addr, m->pinned_chunks[i].size,
				  &m->pinned_chunks[i].oid);
	for (i = 0; i < m->n_array_pieces && !err; i++)
		err = piece_count(c, m, &m->array_pieces[i]);
	for (i = 0; i < m->n_variables && !err; i++)
		err = variable_count(c, m, &m->variables[i]);
	return err;
}

/* Files of caches, such as compiled code, may name paths and users of this host. */
static int files_check(const struct fdry_manifest *m, const struct fdry_oid *image)
{
	char hex[FDRY_OID_HEX_SIZE];
	uint64_t bytes = 0;
	uint32_t i, files = 0;

	for (i = 0; i < m->n_files; i++) {
		files += !m->files[i].offset; /* its first piece */
		bytes += m->files[i].size;
	}
	if (!files)
		return 0;
	return fdry_fail(FDRY_E_PERM, "image %.12s carries %u file%s with %llu bytes, the first is "
			 "'%.100s'; they may hold paths and other data of this host: push with "
			 "--private (FDRY_REGISTRY_PRIVATE) if they may leave it",
			 fdry_oid_hex(image, hex), files, files > 1 ? "s" : "",
			 (unsigned long long)bytes, fdry_manifest_str(m, m->files[0].name));
}

/* Bytes that no tensor declares constant. */
static int content_refuse(const struct content *c, const struct fdry_oid *image)
{
	char hex[FDRY_OID_HEX_SIZE], at[240];

	if (c->variable)
		snprintf(at, sizeof(at), "in module variable %.200s", c->variable);
	else if (fdry_cuarray_is(c->first))
		snprintf(at, sizeof(at), "in array %u", fdry_cuarray_number(c->first));
	else
		snprintf(at, sizeof(at), "at %#llx", (unsigned long long)c->first);
	return fdry_fail(
		FDRY_E_PERM,
		"image %.12s carries %llu bytes that no tensor declares constant, the first %s; "
		"they may be data of the program that sealed it: look with show, and "
		"push with --private (FDRY_REGISTRY_PRIVATE) if they may leave this host",
		fdry_oid_hex(image, hex), (unsigned long long)c->undeclared, at);
}

static int image_check(struct fdry_store *s, const struct fdry_oid *image,
		       struct fdry_span manifest)
{
	struct content c = { 0 };
	struct fdry_manifest m;
	int err = fdry_manifest_init(manifest, &m) ?: files_check(&m, image) ?:
		  fdry_reader_begin(s, &c.reader);

	if (err)
		return err;
	err = chunks_count(&c, &m);
	fdry_reader_end(c.reader);
	fdry_buf_release(&c.constants);
	return err || !c.undeclared ? err : content_refuse(&c, image);
}

int fdry_store_push(struct fdry_store *store, const char *const *names, size_t count,
		    const char *to, const struct fdry_registry_opts *opts,
		    struct fdry_registry_report *report)
{
	return fdry_registry_push(store, names, count, to, opts, image_check, report);
}
