// SPDX-License-Identifier: Apache-2.0
/*
 * targets.c - notes the pointers to module variables, and puts them into the manifest.
 *
 * A variable has another address in each process. So the image has zeros in place of such a
 * pointer, and the manifest says which byte of which variable it points to: in the arguments of a
 * graph, in content, or in the value of a variable. The variable must belong to a module of a
 * kernel that some graph launches (graph/kernel_pointed.c). All graphs are read before it is looked
 * up, because a later graph may launch that kernel.
 */
#include <stdlib.h>

#include "image/seal/seal.h"
#include "lib/search.h"

struct arg_pointer {
	uint32_t graph; /* its index in the manifest */
	struct fdry_graph_word word;
};

struct value_pointer {
	uint32_t variable; /* its index in the manifest */
	uint64_t offset;   /* in the variable */
	uint64_t word;
};

/* A variable that pointers point to: its first address, and its entry in the manifest. */
struct target {
	uint64_t start;
	struct fdry_kernel_variable v;
	struct fdry_mf_target mf;
};

int fdry_seal_graph_pointers(struct fdry_seal *s, const struct fdry_buf *words)
{
	const struct fdry_graph_word *w = fdry_array(*words, struct fdry_graph_word);
	struct arg_pointer p = {
		.graph = (uint32_t)fdry_array_count(s->w.graphs, struct fdry_mf_graph) - 1
	};
	size_t i, n = fdry_array_count(*words, struct fdry_graph_word);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		p.word = w[i];
		err = fdry_buf_put(&s->arg_pointers, &p, sizeof(p));
	}
	return err;
}

int fdry_seal_args_find(struct fdry_seal *s, uint32_t *ret)
{
	const struct arg_pointer *p = fdry_array(s->arg_pointers, struct arg_pointer);
	size_t i, n = fdry_array_count(s->arg_pointers, struct arg_pointer);
	CUdeviceptr start;
	uint64_t size;
	int err;

	*ret = UINT32_MAX;
	for (i = 0; i < n; i++) {
		err = fdry_kernel_set_point(s->kernels, p[i].word.value, &start, &size);
		if (err)
			return err;
		if (start)
			continue;
		*ret = p[i].graph;
		return 0;
	}
	return 0;
}

static bool is_in(const struct fdry_mf_chunk *chunk, const struct fdry_sealed_word *w)
{
	return w->at >= chunk->addr && w->at - chunk->addr < chunk->size;
}

bool fdry_seal_chunk_points(const struct fdry_seal *s, const struct fdry_mf_chunk *chunk)
{
	const struct fdry_sealed_word *w = fdry_array(s->found, struct fdry_sealed_word);
	size_t i, n = fdry_array_count(s->found, struct fdry_sealed_word);

	for (i = 0; i < n && !is_in(chunk, &w[i]); i++)
		;
	return i < n;
}

int fdry_seal_chunk_pointers(struct fdry_seal *s, struct fdry_mf_chunk *chunk,
			     struct fdry_fingerprint *print, uint8_t *bytes)
{
	const struct fdry_sealed_word *w = fdry_array(s->found, struct fdry_sealed_word);
	size_t i, n = fdry_array_count(s->found, struct fdry_sealed_word);
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		if (!is_in(chunk, &w[i]))
			continue;
		fdry_set64(bytes + (w[i].at - chunk->addr), 0);
		err = fdry_buf_put(&s->content_pointers, &w[i], sizeof(w[i]));
	}
	if (err)
		return err;
	*print = fdry_fingerprint_of(bytes, (size_t)chunk->size);
	return fdry_oid_of(bytes, (size_t)chunk->size, &chunk->oid);
}

int fdry_seal_value_pointers(struct fdry_seal *s, uint32_t variable, uint64_t base, uint64_t addr,
			     uint8_t *bytes, size_t len)
{
	const struct fdry_sealed_word *w = fdry_array(s->found, struct fdry_sealed_word);
	size_t i, n = fdry_array_count(s->found, struct fdry_sealed_word);
	struct value_pointer p = { .variable = variable };
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		if (w[i].at < addr || w[i].at - addr >= len)
			continue;
		if (len - (w[i].at - addr) < 8)
			return fdry_fail(FDRY_E_REFUSED,
					 "a pointer to a variable crosses a multiple of %llu "
					 "bytes; keep such pointers at multiples of 8",
					 FDRY_MF_CHUNK_MAX);
		fdry_set64(bytes + (w[i].at - addr), 0);
		p.offset = w[i].at - base;
		p.word = w[i].word;
		err = fdry_buf_put(&s->value_pointers, &p, sizeof(p));
	}
	return err;
}

/* --- the sections of the manifest --- */

static int target_add(struct fdry_seal *s, struct fdry_buf *targets, uint64_t word)
{
	struct target t = { 0 };
	CUdeviceptr start;
	uint64_t size;
	int err = fdry_kernel_set_point(s->kernels, word, &start, &size);

	if (err)
		return err;
	err = fdry_kernel_set_pointed(s->kernels, start, &t.v);
	if (err)
		return err;
	t.start = start;
	return fdry_buf_put(targets, &t, sizeof(t));
}

static int start_cmp(const void *a, const void *b)
{
	return fdry_u64_cmp(&((const struct target *)a)->start, &((const struct target *)b)->start);
}

static int name_cmp(const void *a, const void *b)
{
	const struct target *x = a, *y = b;

	if (x->v.object != y->v.object)
		return x->v.object < y->v.object ? -1 : 1;
	return strcmp(x->v.name, y->v.name);
}

/* List the variables that pointers point to, each once, in the order of the manifest. */
static int targets_list(struct fdry_seal *s, struct fdry_buf *ret)
{
	const struct arg_pointer *a = fdry_array(s->arg_pointers, struct arg_pointer);
	const struct fdry_sealed_word *c = fdry_array(s->content_pointers, struct fdry_sealed_word);
	const struct value_pointer *v = fdry_array(s->value_pointers, struct value_pointer);
	struct target *t;
	size_t i, n, kept = 0;
	int err = 0;

	for (i = 0; i < fdry_array_count(s->arg_pointers, struct arg_pointer) && !err; i++)
		err = target_add(s, ret, a[i].word.value);
	for (i = 0; i < fdry_array_count(s->content_pointers, struct fdry_sealed_word) && !err; i++)
		err = target_add(s, ret, c[i].word);
	for (i = 0; i < fdry_array_count(s->value_pointers, struct value_pointer) && !err; i++)
		err = target_add(s, ret, v[i].word);
	n = fdry_array_count(*ret, struct target);
	if (err || !n)
		return err;
	t = fdry_array(*ret, struct target);
	qsort(t, n, sizeof(*t), start_cmp);
	for (i = 0; i < n; i++)
		if (!i || t[i].start != t[kept - 1].start)
			t[kept++] = t[i];
	qsort(t, kept, sizeof(*t), name_cmp);
	ret->len = kept * sizeof(*t);
	return 0;
}

static int targets_put(struct fdry_seal *s, struct fdry_buf *targets)
{
	struct target *t = fdry_array(*targets, struct target);
	size_t i, n = fdry_array_count(*targets, struct target);
	int err = 0;

	for (i = 0; i < n && !err; i++, t++) {
		t->mf.object = t->v.object;
		t->mf.size = t->v.size;
		err = fdry_manifest_add_str(&s->w, t->v.name, &t->mf.name) ?:
		      fdry_buf_put(&s->w.targets, &t->mf, sizeof(t->mf));
	}
	return err;
}

/* The target that @word points to, and the offset in it. */
static uint32_t target_of(const struct fdry_buf *targets, uint64_t word, uint64_t *offset)
{
	const struct target *t = fdry_array(*targets, struct target);
	uint32_t i = 0;

	while (word - t[i].start >= t[i].v.size)
		i++;
	*offset = word - t[i].start;
	return i;
}

static int args_put(struct fdry_seal *s, const struct fdry_buf *targets)
{
	const struct arg_pointer *p = fdry_array(s->arg_pointers, struct arg_pointer);
	size_t i, n = fdry_array_count(s->arg_pointers, struct arg_pointer);
	struct fdry_mf_arg_pointer mf;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		mf.graph = p[i].graph;
		mf.node = p[i].word.node;
		mf.at = p[i].word.offset;
		mf.target = target_of(targets, p[i].word.value, &mf.offset);
		err = fdry_buf_put(&s->w.arg_pointers, &mf, sizeof(mf));
	}
	return err;
}

static int content_put(struct fdry_seal *s, const struct fdry_buf *targets)
{
	const struct fdry_sealed_word *p = fdry_array(s->content_pointers, struct fdry_sealed_word);
	size_t i, n = fdry_array_count(s->content_pointers, struct fdry_sealed_word);
	struct fdry_mf_content_pointer mf = { 0 };
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		mf.addr = p[i].at;
		mf.target = target_of(targets, p[i].word, &mf.offset);
		err = fdry_buf_put(&s->w.content_pointers, &mf, sizeof(mf));
	}
	return err;
}

static int values_put(struct fdry_seal *s, const struct fdry_buf *targets)
{
	const struct value_pointer *p = fdry_array(s->value_pointers, struct value_pointer);
	size_t i, n = fdry_array_count(s->value_pointers, struct value_pointer);
	struct fdry_mf_value_pointer mf;
	int err = 0;

	for (i = 0; i < n && !err; i++) {
		mf.variable = p[i].variable;
		mf.at = p[i].offset;
		mf.target = target_of(targets, p[i].word, &mf.offset);
		err = fdry_buf_put(&s->w.value_pointers, &mf, sizeof(mf));
	}
	return err;
}

int fdry_seal_targets(struct fdry_seal *s)
{
	struct fdry_buf targets = { 0 };
	int err = targets_list(s, &targets) ?: targets_put(s, &targets);

	if (err)
		goto out_release;
	err = args_put(s, &targets) ?: content_put(s, &targets) ?: values_put(s, &targets);
out_release:
	fdry_buf_release(&targets);
	return err;
}
