// SPDX-License-Identifier: Apache-2.0
/*
 * random.c - records in the manifest how the graphs draw from random-number generators.
 *
 * Before each launch, the library writes a generator's seed and offset to slots of device memory.
 * If no kernel of the graph has a slot's address as an argument, the graph reads its seed
 * elsewhere, and the seal is refused. It is also refused if a copy or memset of the graph uses a
 * slot.
 */
#include <stdlib.h>
#include <string.h>

#include "image/seal/seal.h"

static struct fdry_capture_rng_use *rng_uses_of(const struct fdry_seal *s, size_t *n)
{
	*n = fdry_array_count(s->rng_uses, struct fdry_capture_rng_use);
	return fdry_array(s->rng_uses, struct fdry_capture_rng_use);
}

int fdry_seal_rng_uses_list(struct fdry_seal *s)
{
	struct fdry_capture *cap = s->cap;
	const struct fdry_capture_rng_use *d =
		fdry_array(cap->rng_uses, struct fdry_capture_rng_use);
	size_t i, n = fdry_array_count(cap->rng_uses, struct fdry_capture_rng_use);
	const struct fdry_capture_graph *g;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		g = fdry_capture_graph_find(cap, d[i].key);
		if (g && !g->skip)
			err = fdry_buf_put(&s->rng_uses, &d[i], sizeof(d[i]));
	}
	return err;
}

static int rng_use_cmp(const void *a, const void *b)
{
	const struct fdry_capture_rng_use *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return strcmp(x->desc.generator, y->desc.generator);
}

static int name_cmp(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int names_put(struct fdry_seal *s, const char **names, size_t n)
{
	struct fdry_mf_generator mf = { .kind = FDRY_MF_GENERATOR_COUNTER };
	size_t i;
	int err = 0;

	qsort(names, n, sizeof(*names), name_cmp);
	for (i = 0; i < n && !err; i++) {
		if (i && !strcmp(names[i], names[i - 1]))
			continue;
		err = fdry_manifest_add_str(&s->w, names[i], &mf.name) ?:
		      fdry_buf_put(&s->w.generators, &mf, sizeof(mf));
	}
	return err;
}

static int generators_put(struct fdry_seal *s, const struct fdry_capture_rng_use *d, size_t n)
{
	const char **names = calloc(n, sizeof(*names));
	size_t i;
	int err;

	if (!names)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		names[i] = d[i].desc.generator;
	err = names_put(s, names, n);
	free(names);
	return err;
}

/* Is the slot in an external tensor? Its bytes belong to the loading program, which need not
 * provide memory for all of them. */
static bool is_external(const struct fdry_layout *l, uint64_t addr)
{
	const struct fdry_layout_range *r = fdry_array(l->ranges, struct fdry_layout_range);
	size_t i, n = fdry_array_count(l->ranges, struct fdry_layout_range);

	for (i = 0; i < n; i++)
		if (r[i].role == FDRY_ROLE_EXTERNAL && addr < r[i].addr + r[i].size &&
		    addr + FDRY_RNG_SLOT_BYTES > r[i].addr)
			return true;
	return false;
}

/* Check that the slot is in the same allocation as when the program named it, and set it to
 * zero. */
static int slot_clear(struct fdry_seal *s, const struct fdry_capture_rng_use *d, int which)
{
	const uint64_t addr = which ? d->desc.offset : d->desc.seed;
	bool shared;

	if (is_external(&s->layout, addr))
		return fdry_fail(FDRY_E_REFUSED,
				 "graph %llu: the %s of generator '%s' is in an external tensor, "
				 "and is written before each launch; name the tensor without it",
				 (unsigned long long)d->key, which ? "offset" : "seed",
				 d->desc.generator);

	if (fdry_allocs_under(s->layout.ledger, s->layout.n_ledger, addr, FDRY_RNG_SLOT_BYTES,
			      &shared) != d->serial[which])
		return fdry_fail(FDRY_E_STATE,
				 "the memory of the %s of generator '%s' was freed before the "
				 "seal; keep graph %llu and generator alive",
				 which ? "offset" : "seed", d->desc.generator,
				 (unsigned long long)d->key);
	return fdry_call(s->cap->drv, cuMemsetD8Async, addr, 0, FDRY_RNG_SLOT_BYTES, NULL);
}

int fdry_seal_generators(struct fdry_seal *s)
{
	struct fdry_capture_rng_use *d;
	size_t i, n;
	int err = 0;

	d = rng_uses_of(s, &n);
	if (!n)
		return 0;
	qsort(d, n, sizeof(*d), rng_use_cmp);
	for (i = 0; i < 2 * n; i++) {
		err = slot_clear(s, &d[i / 2], i % 2);
		if (err)
			return err;
	}
	return fdry_call(s->cap->drv, cuCtxSynchronize) ?: generators_put(s, d, n);
}

/* --- one graph --- */

/* How a graph uses two slots. */
struct uses {
	const uint64_t slot[2];
	bool given[2]; /* a kernel has the address as an argument */
	bool touched;  /* a copy or memset uses a slot */
};

static void kernel_uses(struct uses *u, struct fdry_span args)
{
	uint64_t word;
	size_t at;

	for (at = 0; at + 8 <= args.len; at += 4) {
		word = fdry_get64(args.data + at);
		u->given[0] |= word == u->slot[0];
		u->given[1] |= word == u->slot[1];
	}
}

static void range_uses(struct uses *u, uint64_t addr, uint64_t bytes)
{
	int i;

	for (i = 0; i < 2; i++)
		u->touched |= addr < u->slot[i] + FDRY_RNG_SLOT_BYTES && addr + bytes > u->slot[i];
}

static void memops_use(struct uses *u, struct fdry_span ops)
{
	struct fdry_graph_memop op;
	size_t at;

	for (at = 0; at < ops.len; at += sizeof(op)) {
		memcpy(&op, ops.data + at, sizeof(op));
		range_uses(u, op.addr, fdry_graph_memop_bytes(&op));
	}
}

static uint64_t copy_span(const struct fdry_graph_memcpy *c, uint64_t pitch, uint64_t height)
{
	return ((c->depth - 1) * height + c->height - 1) * pitch + c->width;
}

static void node_uses(struct uses *u, const struct fdry_node *n)
{
	const struct fdry_graph_memset *m = &n->memset;
	const struct fdry_graph_memcpy *c = &n->memcpy;

	if (n->kind == FDRY_NODE_KERNEL)
		kernel_uses(u, n->kernel.args);
	if (n->kind == FDRY_NODE_MEMOP)
		memops_use(u, n->memops);
	if (n->kind == FDRY_NODE_MEMSET)
		range_uses(u, m->dst, (m->height - 1) * m->pitch + m->width * m->element_size);
	if (n->kind == FDRY_NODE_MEMCPY) {
		range_uses(u, c->src, copy_span(c, c->src_pitch, c->src_height));
		range_uses(u, c->dst, copy_span(c, c->dst_pitch, c->dst_height));
	}
}

static int uses_find(struct uses *u, const struct fdry_graph_view *view)
{
	struct fdry_graph_cursor c;
	struct fdry_node node;
	int err = fdry_graph_cursor_init(view, &c);

	if (err)
		return err;
	while (fdry_graph_next(&c, &node))
		node_uses(u, &node);
	fdry_graph_cursor_release(&c);
	return 0;
}

static int uses_check(const struct fdry_rng_use *d, const struct fdry_graph_view *view)
{
	struct uses u = { .slot = { d->seed, d->offset } };
	int err = uses_find(&u, view);

	if (err)
		return err;
	if (!u.given[0] || !u.given[1])
		return fdry_fail(FDRY_E_REFUSED,
				 "no kernel has as an argument the address of the %s of generator "
				 "'%s', %#llx; name the address that the kernels read",
				 u.given[0] ? "offset" : "seed", d->generator,
				 (unsigned long long)(u.given[0] ? d->offset : d->seed));
	if (u.touched)
		return fdry_fail(FDRY_E_REFUSED,
				 "it copies or sets the state of generator '%s', which is written "
				 "before each launch; leave that to kernels that draw",
				 d->generator);
	return 0;
}

static uint32_t generator_index(const struct fdry_seal *s, const char *name)
{
	const struct fdry_mf_generator *g = fdry_array(s->w.generators, struct fdry_mf_generator);
	uint32_t i;

	for (i = 0; strcmp((const char *)s->w.strings.data + g[i].name, name); i++)
		;
	return i;
}

static int rng_use_put(struct fdry_seal *s, uint32_t graph, const struct fdry_rng_use *d)
{
	struct fdry_mf_rng_use mf = { .graph = graph,
				      .generator = generator_index(s, d->generator),
				      .seed = d->seed,
				      .offset = d->offset,
				      .increment = d->increment };

	return fdry_buf_put(&s->w.rng_uses, &mf, sizeof(mf));
}

int fdry_seal_rng_uses(struct fdry_seal *s, const struct fdry_capture_graph *g,
		       const struct fdry_graph_view *view)
{
	uint32_t graph = (uint32_t)fdry_array_count(s->w.graphs, struct fdry_mf_graph), found = 0;
	const struct fdry_capture_rng_use *d;
	size_t i, n;
	int err = 0;

	d = rng_uses_of(s, &n);
	for (i = 0; i < n && !err; i++) {
		if (d[i].key != g->key)
			continue;
		found++;
		err = uses_check(&d[i].desc, view) ?: rng_use_put(s, graph, &d[i].desc);
	}
	if (err)
		return err;
	if (g->random && !found)
		return fdry_fail(
			FDRY_E_REFUSED,
			"it draws random numbers, and no fdry_capture_rng_use() names the "
			"addresses of its generator's seed and offset; call it, or draw outside "
			"of the graph");
	return 0;
}
