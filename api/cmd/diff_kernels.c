// SPDX-License-Identifier: Apache-2.0
/*
 * diff_kernels.c - compares the kernels of two images.
 *
 * An image numbers its kernels in the order of their first use, so the numbers of two images
 * cannot be compared. Each kernel gets a rank instead. Two kernels have the same rank if their
 * names, code, attributes and parameters are equal.
 */
#include <stdlib.h>
#include <string.h>

#include "api/cmd/diff.h"

/* --- order --- */

static const struct fdry_oid *object_of(const struct fdry_manifest *m,
					const struct fdry_mf_kernel *k)
{
	return &m->objects[k->object].oid;
}

static int by_attrs(const struct fdry_manifest *m, uint32_t i, const struct fdry_manifest *n,
		    uint32_t j)
{
	uint32_t x = cmd_attrs_of(m, i), y = cmd_attrs_of(n, j);
	bool more_x, more_y;

	for (;; x++, y++) {
		more_x = x < m->n_attrs && m->attrs[x].kernel == i;
		more_y = y < n->n_attrs && n->attrs[y].kernel == j;
		if (!more_x || !more_y)
			return more_x - more_y;
		if (m->attrs[x].id != n->attrs[y].id)
			return m->attrs[x].id < n->attrs[y].id ? -1 : 1;
		if (m->attrs[x].value != n->attrs[y].value)
			return m->attrs[x].value < n->attrs[y].value ? -1 : 1;
	}
}

static int by_params(const struct fdry_manifest *m, const struct fdry_mf_kernel *x,
		     const struct fdry_manifest *n, const struct fdry_mf_kernel *y)
{
	if (x->param_bytes != y->param_bytes)
		return x->param_bytes < y->param_bytes ? -1 : 1;
	if (x->param_count != y->param_count)
		return x->param_count < y->param_count ? -1 : 1;
	return x->param_count ? memcmp(m->params + x->param_first, n->params + y->param_first,
				       x->param_count * sizeof(*m->params)) : 0;
}

/* The name is compared first, so kernels that differ in the rest become one change. */
static int compare(const struct fdry_manifest *m, uint32_t i, const struct fdry_manifest *n,
		   uint32_t j)
{
	const struct fdry_mf_kernel *x = &m->kernels[i], *y = &n->kernels[j];
	int order = strcmp(fdry_manifest_str(m, x->name), fdry_manifest_str(n, y->name));

	if (!order)
		order = memcmp(object_of(m, x), object_of(n, y), FDRY_OID_SIZE);
	if (!order)
		order = memcmp(x->attrs, y->attrs, sizeof(x->attrs));
	if (!order)
		order = by_params(m, x, n, y);
	return order ? order : by_attrs(m, i, n, j);
}

static int by_kernel(const void *a, const void *b, void *m)
{
	return compare(m, *(const uint32_t *)a, m, *(const uint32_t *)b);
}

/* --- ranks --- */

static int kernels_sort(struct fdry_manifest *m, struct diff_kernels *k)
{
	uint32_t i;

	k->sorted = calloc((size_t)m->n_kernels + 1, sizeof(*k->sorted));
	k->rank = calloc((size_t)m->n_kernels + 1, sizeof(*k->rank));
	if (!k->sorted || !k->rank)
		return fdry_nomem();
	for (i = 0; i < m->n_kernels; i++)
		k->sorted[i] = i;
	qsort_r(k->sorted, m->n_kernels, sizeof(*k->sorted), by_kernel, m);
	return 0;
}

int diff_kernels_rank(struct diff *d)
{
	struct fdry_manifest *a = &d->im[0].m, *b = &d->im[1].m;
	uint32_t i = 0, j = 0, rank = 0;
	int order, err = kernels_sort(a, &d->kernels[0]) ?: kernels_sort(b, &d->kernels[1]);

	if (err)
		return err;
	for (; i < a->n_kernels || j < b->n_kernels; rank++) {
		order = i == a->n_kernels ? 1 : j == b->n_kernels ? -1 :
			compare(a, d->kernels[0].sorted[i], b, d->kernels[1].sorted[j]);
		if (order <= 0)
			d->kernels[0].rank[d->kernels[0].sorted[i++]] = rank;
		if (order >= 0)
			d->kernels[1].rank[d->kernels[1].sorted[j++]] = rank;
	}
	return 0;
}

void diff_kernels_release(struct diff *d)
{
	int k;

	for (k = 0; k < 2; k++) {
		free(d->kernels[k].sorted);
		free(d->kernels[k].rank);
	}
}

/* --- reporting --- */

static int kernel_order(const struct diff *d, uint32_t i, uint32_t j)
{
	return compare(&d->im[0].m, d->kernels[0].sorted[i], &d->im[1].m, d->kernels[1].sorted[j]);
}

static void kernel_text(const struct fdry_manifest *m, uint32_t i, char *ret, size_t len)
{
	const struct fdry_mf_kernel *k = &m->kernels[i];
	char hex[FDRY_OID_HEX_SIZE];
	size_t n;
	uint32_t a;

	snprintf(ret, len, "%.16s %u bytes of parameters, attributes %d %d %d",
		 fdry_oid_hex(object_of(m, k), hex), k->param_bytes, k->attrs[0], k->attrs[1],
		 k->attrs[2]);
	for (a = cmd_attrs_of(m, i); a < m->n_attrs && m->attrs[a].kernel == i; a++) {
		n = strlen(ret);
		snprintf(ret + n, len - n, ", %u: %d", m->attrs[a].id, m->attrs[a].value);
	}
	n = strlen(ret);
	snprintf(ret + n, len - n, "%s", k->whole_reason ? " (whole)" : "");
}

static int kernel_found(struct diff *d, int64_t i, int64_t j)
{
	const struct fdry_manifest *m = &d->im[i < 0].m;
	uint32_t k = i < 0 ? d->kernels[1].sorted[j] : d->kernels[0].sorted[i];
	char text[256];

	if (i >= 0 && j >= 0)
		return 0;
	kernel_text(m, k, text, sizeof(text));
	diff_begin(d, i < 0 ? DIFF_ADDED : DIFF_REMOVED, fdry_manifest_str(m, m->kernels[k].name),
		   i < 0 ? "" : text, i < 0 ? text : "");
	diff_end(d);
	return 0;
}

int diff_kernels(struct diff *d)
{
	const struct diff_list l = { "kernels",
				     { d->im[0].m.n_kernels, d->im[1].m.n_kernels },
				     kernel_order,
				     kernel_found };

	return diff_list(d, &l);
}
