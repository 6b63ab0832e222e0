// SPDX-License-Identifier: Apache-2.0
/*
 * args.c - argument blocks in columns: a similar earlier block for each, and the differences.
 *
 * Nodes of one kernel repeat with one or two pointers changed. PyTorch's argument blocks also hold
 * hundreds of uninitialised bytes from other launches. So a block is stored as the words of 4 bytes
 * in which it differs from another block. That is an earlier block of the same kernel, stored as
 * the distance back to it, or a block of zeros. The encoder compares the last WINDOW blocks of the
 * kernel and the zeros, and chooses the one with the fewest differences. Among equals it prefers
 * the zeros, then the nearest block. In the graph of a language model's decoder, 595 bytes a node
 * become 26 (Documentation/design/graphs.rst).
 */
#include "graph/args.h"

#include <inttypes.h>

#define WINDOW 16u
#define WORD 4u
#define LIKE_MAX UINT16_MAX

/* The most recent nodes of one kernel. */
struct recent {
	uint32_t count; /* of all nodes of the kernel */
	uint32_t node[WINDOW];
};

/* --- writing --- */

static int recent_get(struct fdry_graph_enc *enc, uint32_t kernel, struct recent **ret)
{
	size_t have = enc->recent.len / sizeof(**ret);
	int err = 0;

	if (kernel >= have)
		err = fdry_buf_grow(&enc->recent, (kernel + 1 - have) * sizeof(**ret), NULL);
	if (err)
		return err;
	*ret = (struct recent *)enc->recent.data + kernel;
	return 0;
}

#define CHUNK 64u

/*
 * The number of words of a chunk that differ. The loop has no early exit, so that compilers
 * vectorise it.
 */
static uint32_t chunk_differ(const uint8_t *a, const uint8_t *b)
{
	uint32_t x[CHUNK / WORD], y[CHUNK / WORD], n = 0, i;

	memcpy(x, a, CHUNK);
	memcpy(y, b, CHUNK);
	for (i = 0; i < CHUNK / WORD; i++)
		n += x[i] != y[i];
	return n;
}

/* The number of words that differ, but it may stop counting at @enough. @len is a multiple of 8. */
static uint32_t words_differ(const uint8_t *a, const uint8_t *b, size_t len, uint32_t enough)
{
	uint32_t n = 0;
	uint64_t x;
	size_t i;

	for (i = 0; i + CHUNK <= len && n < enough; i += CHUNK)
		n += chunk_differ(a + i, b + i);
	for (; i < len && n < enough; i += 2 * WORD) {
		x = fdry_get64(a + i) ^ fdry_get64(b + i);
		n += ((uint32_t)x != 0) + (x >> 32 != 0);
	}
	return n;
}

static uint32_t words_set(const uint8_t *a, size_t len)
{
	uint32_t n = 0;
	size_t i;

	for (i = 0; i < len; i += WORD)
		n += fdry_get32(a + i) != 0;
	return n;
}

/*
 * The distance back to the block that is most like @block, the last of enc->blocks; 0: the zeros.
 */
static uint32_t like_find(const struct fdry_graph_enc *enc, const struct recent *r,
			  const uint8_t *block, size_t len)
{
	uint32_t self = (uint32_t)(enc->starts.len / 8) - 1, best = words_set(block, len), like = 0,
		 i, n, node;

	for (i = 1; i <= r->count && i <= WINDOW && best; i++) {
		node = r->node[(r->count - i) % WINDOW];
		if (self - node > LIKE_MAX)
			break;
		n = words_differ(block,
				 enc->blocks.data + fdry_get64(enc->starts.data + 8 * (size_t)node),
				 len, best);
		if (n < best) {
			best = n;
			like = self - node;
		}
	}
	return like;
}

static int u16_put(struct fdry_buf *b, uint32_t v)
{
	uint8_t bytes[2];

	fdry_set16(bytes, (uint16_t)v);
	return fdry_buf_put(b, bytes, sizeof(bytes));
}

/* Store the words in which @block differs from @from (NULL: zeros). */
static int patches_put(struct fdry_graph_enc *enc, const uint8_t *block, const uint8_t *from,
		       size_t len, uint32_t *count)
{
	uint32_t word;
	size_t i;
	int err;

	*count = 0;
	for (i = 0; i < len; i += WORD) {
		word = fdry_get32(block + i);
		if (word == (from ? fdry_get32(from + i) : 0))
			continue;
		err = u16_put(&enc->column[FDRY_GSEC_PATCH_AT], (uint32_t)(i / WORD));
		if (err)
			return err;
		err = fdry_buf_put_u32(&enc->column[FDRY_GSEC_PATCH], word);
		if (err)
			return err;
		++*count;
	}
	return 0;
}

/* Encode the block from @start to the end of enc->blocks. */
static int block_put(struct fdry_graph_enc *enc, const struct recent *r, size_t start)
{
	const uint8_t *block = enc->blocks.data + start, *from = NULL;
	size_t len = enc->blocks.len - start, self = enc->starts.len / 8 - 1;
	uint32_t like = like_find(enc, r, block, len), count;
	int err;

	if (like)
		from = enc->blocks.data + fdry_get64(enc->starts.data + 8 * (self - like));
	err = patches_put(enc, block, from, len, &count);
	if (err)
		return err;
	err = u16_put(&enc->column[FDRY_GSEC_NODE_LIKE], like);
	return err ? err : u16_put(&enc->column[FDRY_GSEC_NODE_PATCHES], count);
}

int fdry_args_put(struct fdry_graph_enc *enc, uint32_t kernel, struct fdry_span args)
{
	size_t start = enc->blocks.len;
	struct recent *r;
	int err;

	if (start + fdry_graph_padded(args.len) > FDRY_GRAPH_ARG_BYTES_MAX ||
	    args.len > FDRY_KERNEL_PARAM_BYTES_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the graph's arguments take more than %" PRIu64
				 " bytes, or those of one node more than %u; "
				 "split the graph",
				 (uint64_t)FDRY_GRAPH_ARG_BYTES_MAX, FDRY_KERNEL_PARAM_BYTES_MAX);
	err = recent_get(enc, kernel, &r);
	if (err)
		return err;
	err = fdry_buf_put_u64(&enc->starts, start);
	if (err)
		return err;
	err = fdry_buf_put(&enc->blocks, args.data, args.len);
	if (err)
		return err;
	err = fdry_buf_align(&enc->blocks, FDRY_GRAPH_ALIGN);
	if (err)
		return err;
	err = block_put(enc, r, start);
	if (err)
		return err;
	r->node[r->count++ % WINDOW] = (uint32_t)(enc->starts.len / 8) - 1;
	return 0;
}

/* --- checking --- */

static uint32_t kernel_of(const struct fdry_graph_view *v, uint32_t node)
{
	return fdry_graph_u32(v, FDRY_GSEC_CONFIG_KERNEL,
			      fdry_graph_u16(v, FDRY_GSEC_NODE_CONFIG, node));
}

/* Patches [@from, @end) of one block of @bytes bytes must lie inside it, in ascending order, with
 * zero padding. */
static int patches_check(const struct fdry_graph_view *v, uint32_t node, uint32_t from,
			 uint32_t end, uint32_t bytes)
{
	uint32_t i, at, after = UINT32_MAX, over;

	for (i = from; i < end; i++, after = at) {
		at = fdry_graph_u16(v, FDRY_GSEC_PATCH_AT, i);
		if (at + 1 <= after + 1 || at * WORD >= bytes)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "patch %u, at word %u of the %u bytes of kernel node %u, "
					 "is out of order or outside",
					 i, at, bytes, node);
		over = at * WORD + WORD > bytes ? at * WORD + WORD - bytes : 0;
		if (over && fdry_graph_u32(v, FDRY_GSEC_PATCH, i) >> 8 * (WORD - over))
			return fdry_fail(
				FDRY_E_BADIMAGE,
				"padding after the arguments of kernel node %u is not zero", node);
	}
	return 0;
}

static int like_check(const struct fdry_graph_view *v, uint32_t node, uint32_t kernel)
{
	uint32_t like = fdry_graph_u16(v, FDRY_GSEC_NODE_LIKE, node);

	if (like && (like > node || kernel_of(v, node - like) != kernel))
		return fdry_fail(
			FDRY_E_BADIMAGE,
			"kernel node %u refers to the node %u before it, which has another kernel",
			node, like);
	return 0;
}

int fdry_args_check(const struct fdry_graph_view *v)
{
	const struct fdry_graph_header *h = &v->header;
	uint64_t at = 0;
	struct fdry_graph_kernel kernel;
	uint32_t i, k, bytes, n, patch = 0;
	int err;

	for (i = 0; i < h->kernel_nodes; i++, patch += n) {
		k = kernel_of(v, i);
		kernel = fdry_graph_kernel_at(v, k);
		bytes = fdry_graph_kernel_args(&kernel);
		at += fdry_graph_padded(bytes);
		n = fdry_graph_u16(v, FDRY_GSEC_NODE_PATCHES, i);
		if (at > h->arg_bytes || n > h->patches - patch)
			return fdry_fail(FDRY_E_BADIMAGE,
					 "the arguments of kernel node %u end at %" PRIu64
					 " of %" PRIu64 " bytes, its patches at %" PRIu64 " of %u",
					 i, at, h->arg_bytes, (uint64_t)patch + n, h->patches);
		err = like_check(v, i, k);
		if (err)
			return err;
		err = patches_check(v, i, patch, patch + n, bytes);
		if (err)
			return err;
	}
	if (at != h->arg_bytes || patch != h->patches)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "%" PRIu64 " bytes of arguments and %u patches belong to no node",
				 h->arg_bytes - at, h->patches - patch);
	return 0;
}

/* --- reading --- */

const uint8_t *fdry_args_get(struct fdry_graph_cursor *c, uint32_t i, uint32_t bytes)
{
	const struct fdry_graph_view *v = c->v;
	uint32_t like = fdry_graph_u16(v, FDRY_GSEC_NODE_LIKE, i),
		 end = c->patch + fdry_graph_u16(v, FDRY_GSEC_NODE_PATCHES, i);
	size_t len = fdry_graph_padded(bytes);
	uint8_t *block = c->blocks + c->args;

	c->starts[i] = (uint32_t)(c->args / FDRY_GRAPH_ALIGN);
	c->args += len;
	if (like)
		memcpy(block, c->blocks + (size_t)c->starts[i - like] * FDRY_GRAPH_ALIGN, len);
	else
		memset(block, 0, len);
	for (; c->patch < end; c->patch++)
		fdry_set32(block + WORD * (size_t)fdry_graph_u16(v, FDRY_GSEC_PATCH_AT, c->patch),
			   fdry_graph_u32(v, FDRY_GSEC_PATCH, c->patch));
	return block;
}
