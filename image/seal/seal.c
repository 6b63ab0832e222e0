// SPDX-License-Identifier: Apache-2.0
/*
 * seal.c - makes an image of a capture, phase by phase.
 *
 * The phases are, in this order: check that no capture, texture or surface is live, lay out
 * memory, read the graphs (which interns kernels), slice the kernels, store content, check that no
 * memory changed during the seal, store the kernels, then manifest and ref. Each object is stored
 * when it is made, the manifest last. A failed seal leaves objects without references, which gc
 * removes. The capture is locked during the whole seal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "image/identity.h"
#include "lib/log.h"
#include "lib/opts.h"
#include "image/seal/seal.h"
#include "lib/telemetry.h"

/* --- live objects of the program --- */

static int live_check(const struct fdry_hook_live *live)
{
	if (live->captures)
		return fdry_fail(FDRY_E_STATE,
				 "%llu stream(s) are capturing; end every capture before the seal",
				 (unsigned long long)live->captures);
	if (live->textures || live->surfaces)
		return fdry_fail(FDRY_E_REFUSED,
				 "%llu texture and %llu surface objects are alive, and a graph's "
				 "arguments may hold them; destroy them before the seal",
				 (unsigned long long)live->textures,
				 (unsigned long long)live->surfaces);
	if (live->unwrapped)
		return fdry_fail(
			FDRY_E_REFUSED,
			"the driver returned to the program %llu function(s) in a version that the "
			"interposer does not know, so it may not have seen all; use a newer "
			"Foundry",
			(unsigned long long)live->unwrapped);
	return 0;
}

/* Check that memory and the number of graph launches are unchanged since the seal began. */
static int still_check(const struct fdry_seal *s)
{
	struct fdry_hook_live now;
	int err;

	s->cap->hook->live(&now);
	err = live_check(&now);
	if (err)
		return err;
	if (now.graph_launches != s->live.graph_launches)
		return fdry_fail(FDRY_E_STATE, "graphs were launched while the seal ran; "
				 "let the program's other threads wait for it");
	err = fdry_layout_still(&s->layout, s->cap);
	if (err)
		return err;
	return fdry_seal_pinned_still(s) ?: fdry_seal_hosts_still(s) ?: fdry_seal_arrays_still(s);
}

/* --- names, facts, limits --- */

static int tensor_cmp(const void *a, const void *b)
{
	const struct fdry_capture_tensor *x = a, *y = b;

	return strcmp(x->desc.name, y->desc.name);
}

/* Check that the tensor is in the same allocation as when the program named it. */
static int tensor_check(const struct fdry_seal *s, const struct fdry_capture_tensor *t)
{
	bool shared;

	if (t->desc.flags & FDRY_TENSOR_HOST)
		return 0; /* fdry_seal_hosts() checked it */
	if (fdry_allocs_under(s->layout.ledger, s->layout.n_ledger, t->desc.addr, t->extent,
			      &shared) == t->serial)
		return 0;
	return fdry_fail(FDRY_E_STATE,
			 "the memory of tensor '%s' was freed before the seal; keep it alive",
			 t->desc.name);
}

static int tensor_put(struct fdry_seal *s, const struct fdry_tensor *d, uint64_t extent)
{
	struct fdry_mf_tensor mf = { .dtype = d->dtype,
				     .use = d->use,
				     .flags = d->flags,
				     .rank = d->rank,
				     .addr = d->addr };
	int err = fdry_manifest_add_str(&s->w, d->name, &mf.name);

	if (d->flags & FDRY_TENSOR_HOST)
		fdry_seal_host(s, d->addr, extent, &mf.addr);
	memcpy(mf.shape, d->shape, sizeof(mf.shape));
	memcpy(mf.stride, d->stride, sizeof(mf.stride));
	return err ? err : fdry_buf_put(&s->w.tensors, &mf, sizeof(mf));
}

static int capacity_put(struct fdry_seal *s, uint32_t tensor, const struct fdry_capture_tensor *t)
{
	struct fdry_mf_capacity mf = { .tensor = tensor, .max = t->capacity };

	return t->capacity ? fdry_buf_put(&s->w.capacities, &mf, sizeof(mf)) : 0;
}

static int tensors_seal(struct fdry_seal *s)
{
	struct fdry_capture_tensor *t = fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(s->cap->tensors, struct fdry_capture_tensor);
	int err;

	if (n)
		qsort(t, n, sizeof(*t), tensor_cmp);
	for (i = 0; i < n; i++) {
		err = tensor_check(s, &t[i]);
		if (err)
			return err;
		err = tensor_put(s, &t[i].desc, t[i].extent);
		if (err)
			return err;
		err = capacity_put(s, (uint32_t)i, &t[i]);
		if (err)
			return err;
	}
	return 0;
}

static int fact_cmp(const void *a, const void *b)
{
	return strcmp(((const struct fdry_fact *)a)->key, ((const struct fdry_fact *)b)->key);
}

static int facts_put(struct fdry_seal *s, struct fdry_fact *facts, size_t n)
{
	size_t i;
	int err = 0;

	qsort(facts, n, sizeof(*facts), fact_cmp);
	for (i = 0; i < n && !err; i++)
		err = fdry_manifest_add_fact(&s->w, facts[i].key, facts[i].value);
	return err;
}

static int facts_seal(struct fdry_seal *s)
{
	const struct fdry_capture_fact *f = fdry_array(s->cap->facts, struct fdry_capture_fact);
	size_t i, n = fdry_array_count(s->cap->facts, struct fdry_capture_fact);
	struct fdry_identity id;
	struct fdry_fact *facts;
	int err;

	err = fdry_identity_of(s->cap->drv, s->cap->device, &id);
	if (err)
		return err;
	facts = calloc(n + FDRY_IDENTITY_FACTS, sizeof(*facts));
	if (!facts)
		return fdry_nomem();
	for (i = 0; i < n; i++)
		facts[i] = (struct fdry_fact){ f[i].key, f[i].value };
	for (i = 0; i < FDRY_IDENTITY_FACTS; i++)
		facts[n + i] = (struct fdry_fact){ id.fact[i].key, id.fact[i].value };
	err = facts_put(s, facts, n + FDRY_IDENTITY_FACTS);
	free(facts);
	return err;
}

static int alloc_cmp(const void *a, const void *b)
{
	uint64_t x = ((const struct fdry_alloc *)a)->serial,
		 y = ((const struct fdry_alloc *)b)->serial;

	return (x > y) - (x < y);
}

/* Record the allocations in the order in which they were made. A load into a region compares them;
 * see fdry_load_opts.into. */
static int allocs_seal(struct fdry_seal *s)
{
	size_t i, n = s->layout.n_ledger;
	struct fdry_alloc *made = malloc((n ? n : 1) * sizeof(*made));
	int err = 0;

	if (!made)
		return fdry_nomem();
	if (n)
		memcpy(made, s->layout.ledger, n * sizeof(*made));
	qsort(made, n, sizeof(*made), alloc_cmp);
	for (i = 0; i < n && !err; i++)
		if (made[i].kind != FDRY_KIND_SHARED)
			err = fdry_buf_put(&s->w.allocs,
					   &(struct fdry_mf_alloc){ made[i].addr, made[i].size },
					   sizeof(struct fdry_mf_alloc));
	free(made);
	return err;
}

static int limit_put(struct fdry_seal *s, CUlimit limit)
{
	struct fdry_mf_limit mf = { .limit = limit };
	size_t value;
	int err = fdry_call(s->cap->drv, cuCtxGetLimit, &value, limit);

	if (err)
		return err;
	mf.value = value;
	return fdry_buf_put(&s->w.limits, &mf, sizeof(mf));
}

/* The limit of the stack, that of the buffer of printf if a kernel prints, and that of the heap if
 * a kernel allocates. */
static int limits_seal(struct fdry_seal *s)
{
	uint32_t i, n = fdry_kernel_set_count(s->kernels);
	int err = limit_put(s, CU_LIMIT_STACK_SIZE);

	for (i = 0; i < n && !fdry_kernel_set_get(s->kernels, i)->prints; i++)
		;
	if (!err && i < n)
		err = limit_put(s, CU_LIMIT_PRINTF_FIFO_SIZE);
	if (!err && fdry_kernel_set_allocates(s->kernels))
		err = limit_put(s, CU_LIMIT_MALLOC_HEAP_SIZE);
	return err;
}

/* --- the whole seal --- */

static int commit(struct fdry_seal *s, const char *ref, struct fdry_oid *ret)
{
	struct fdry_writer *writer = s->writer;
	struct fdry_buf bytes = { 0 };
	struct fdry_oid identity, *links;
	struct fdry_writer_stats stats = { 0 };
	size_t n;
	int err = fdry_identity_encode(&s->w, &bytes, &identity, &links, &n);

	if (err)
		return err;
	s->report.manifest_bytes = bytes.len;
	fdry_seal_spent(s, encode);
	fdry_writer_set_identity(writer, &identity);
	s->writer = NULL; /* the commit ends the session, also when it fails */
	err = fdry_writer_commit(writer, bytes.data, bytes.len, links, n, ref, ret, &stats);
	s->report.objects_new = stats.objects_new;
	s->report.objects_known = stats.objects_known;
	s->report.stored_new = stats.stored_new;
	fdry_seal_spent(s, commit);
	free(links);
	fdry_buf_release(&bytes);
	return err;
}

/* Add the segments and the bounds of the region to the manifest. */
static int segments_put(struct fdry_seal *s)
{
	const struct fdry_layout_range *r = fdry_array(s->layout.ranges, struct fdry_layout_range);
	const struct fdry_capture_tensor *t =
		fdry_array(s->cap->tensors, struct fdry_capture_tensor);
	size_t i, n = fdry_array_count(s->layout.ranges, struct fdry_layout_range);
	struct fdry_mf_segment seg;
	int err = 0;

	for (i = 0; i < n && !err; i++, r++) {
		seg = (struct fdry_mf_segment){ r->addr, r->size, r->role, 0 };
		err = fdry_buf_put(&s->w.segments, &seg, sizeof(seg));
	}
	s->w.base = s->layout.base;
	s->w.end = s->layout.end;
	/* Spare capacity lies behind the memory of its tensor. */
	for (i = 0; i < fdry_array_count(s->cap->tensors, struct fdry_capture_tensor); i++)
		if (t[i].capacity && s->w.end < t[i].desc.addr + t[i].capacity)
			s->w.end = t[i].desc.addr + t[i].capacity;
	return err;
}

static int memory_lay_out(struct fdry_seal *s)
{
	int err = fdry_layout_make(s->cap, s->reader, &s->layout);

	if (err)
		return err;
	err = segments_put(s) ?:
	      fdry_pointers_new(&s->maps, &s->layout, &s->pointers) ?: fdry_seal_generators(s);
	if (err)
		return err;
	err = fdry_seal_hosts(s);
	if (err)
		return err;
	err = fdry_seal_pinned_list(s) ?: fdry_seal_audit_begin(s);
	fdry_seal_spent(s, layout);
	return err;
}

static int content_seal(struct fdry_seal *s)
{
	int err = fdry_seal_content(s);

	fdry_seal_spent(s, content);
	if (err)
		return err;
	err = fdry_seal_host_content(s) ?: fdry_seal_arrays_content(s);
	if (err)
		return err;
	err = fdry_seal_pinned(s);
	fdry_seal_spent(s, host);
	if (err)
		return err;
	err = still_check(s);
	fdry_seal_spent(s, still);
	return err;
}

static int facts_and_tensors_seal(struct fdry_seal *s)
{
	int err = tensors_seal(s);

	if (err)
		return err;
	err = fdry_seal_externals(s);
	if (err)
		return err;
	err = still_check(s);
	if (err)
		return err;
	err = facts_seal(s);
	if (err)
		return err;
	err = limits_seal(s);
	if (err)
		return err;
	err = allocs_seal(s);
	fdry_seal_spent(s, facts);
	return err;
}

/* Run the phases in their order, and record the time of each. */
static int image_make(struct fdry_seal *s, const char *ref, struct fdry_oid *ret)
{
	double mark = fdry_now_ms(), layout_ms;
	uint32_t kernels;
	int err;

	fdry_seal_spent(s, begin);
	err = memory_lay_out(s);
	if (err)
		return err;
	layout_ms = fdry_elapsed_ms(&mark);
	err = fdry_seal_graphs(s);
	if (err)
		return err;
	s->report.graphs_ms = fdry_elapsed_ms(&mark);
	err = fdry_seal_kernels(s) ?: fdry_seal_args_again(s);
	if (err)
		return err;
	s->report.kernels_ms = fdry_elapsed_ms(&mark);
	kernels = fdry_kernel_set_count(s->kernels);
	fdry_seal_progress(s, FDRY_SEAL_SLICES, kernels, kernels);
	err = content_seal(s);
	if (err)
		return err;
	s->report.content_ms = layout_ms + fdry_elapsed_ms(&mark);
	err = fdry_seal_kernels_put(s) ?: fdry_seal_audit_put(s);
	if (err)
		return err;
	s->report.kernels_ms += fdry_elapsed_ms(&mark);
	fdry_seal_progress(s, FDRY_SEAL_KERNELS, kernels, kernels);
	err = facts_and_tensors_seal(s);
	if (err)
		return err;
	err = fdry_seal_selftest(s);
	if (err)
		return err;
	fdry_elapsed_ms(&mark);
	err = commit(s, ref, ret);
	s->report.commit_ms = fdry_elapsed_ms(&mark);
	if (err)
		return err;
	fdry_seal_progress(s, FDRY_SEAL_COMMIT, 1, 1);
	return 0;
}

static int code_find(void *arg, CUlibrary library, CUmodule module, struct fdry_code_image *ret)
{
	struct fdry_capture *cap = arg;
	struct fdry_code code;
	int err = cap->hook->code_find(library, module, &code);

	if (err)
		return fdry_interposer_result(cap->hook, err);
	if (code.jit_symbols)
		return fdry_fail(FDRY_E_REFUSED,
				 "the code was linked with the program's own symbols, which "
				 "a load cannot provide; load code without them");
	*ret = (struct fdry_code_image){ code.data, code.len, code.njit, code.jit,
					 code.jit_values };
	return 0;
}

static void parts_log(const struct fdry_seal *s)
{
	static const char *const names[] = {
#define X(part) #part,
		FDRY_SEAL_PARTS(X)
#undef X
	};
	char text[512];
	size_t i, len = 0;

	for (i = 0; i < FDRY_SEAL_PART_COUNT; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, " %s %.2f", names[i],
					s->parts[i]);
	fdry_debug("seal of %llu graphs in ms:%s", (unsigned long long)s->report.graphs, text);
}

static void seal_release(struct fdry_seal *s)
{
	fdry_writer_abort(s->writer);
	if (s->kernels)
		fdry_kernel_set_yield(s->kernels, &s->cap->codes);
	fdry_kernel_set_free(s->kernels);
	fdry_pointers_free(s->pointers);
	fdry_seal_maps_release(&s->maps);
	fdry_mem_reader_free(s->reader);
	fdry_layout_release(&s->layout);
	fdry_seal_pinned_release(s);
	fdry_buf_release(&s->graphs);
	fdry_buf_release(&s->rng_uses);
	fdry_buf_release(&s->graph_pointers);
	fdry_buf_release(&s->arg_pointers);
	fdry_buf_release(&s->content_pointers);
	fdry_buf_release(&s->value_pointers);
	fdry_buf_release(&s->found);
	fdry_buf_release(&s->arrays);
	fdry_buf_release(&s->mipmaps);
	fdry_buf_release(&s->events);
	fdry_buf_release(&s->event_uses);
	fdry_buf_release(&s->host_tensors);
	fdry_buf_release(&s->hosts);
	fdry_seal_audit_release(s);
	fdry_manifest_writer_release(&s->w);
}

/* The capture is locked. */
static int seal_locked(struct fdry_seal *s, const char *ref, struct fdry_oid *ret)
{
	struct fdry_capture *cap = s->cap;
	int err;

	s->mark = fdry_now_ms();
	cap->hook->live(&s->live);
	err = live_check(&s->live) ?: fdry_capture_wait(cap) ?: fdry_capture_enter(cap);
	if (err)
		return err;
	err = fdry_call(cap->drv, cuCtxSynchronize) ?:
	      fdry_mem_reader_new(cap->drv, FDRY_SEAL_BLOCKS, &s->reader);
	if (err)
		goto out_leave;
	err = fdry_seal_graphs_list(s) ?: fdry_seal_maps_init(&s->maps) ?:
	      fdry_kernel_set_new(cap->drv, cap->device, code_find, cap, &s->kernels);
	if (err)
		goto out_release;
	fdry_kernel_set_adopt(s->kernels, &cap->codes);
	err = fdry_writer_begin(s->store, &s->writer);
	if (err)
		goto out_release;
	err = image_make(s, ref, ret);
out_release:
	seal_release(s);
	fdry_seal_spent(s, end);
	parts_log(s);
out_leave:
	fdry_capture_leave(cap);
	return err;
}

int fdry_capture_seal(struct fdry_capture *cap, struct fdry_store *store, const char *ref, char *id,
		      struct fdry_seal_report *report)
{
	struct fdry_seal s = { .cap = cap, .store = store, .start_ms = fdry_now_ms() };
	struct fdry_oid oid;
	int err = fdry_capture_check(cap);

	if (err)
		return err;
	err = fdry_report_check(report);
	if (err)
		return err;
	if (ref)
		err = fdry_ref_check(ref);
	if (err)
		return err;
	err = fdry_need(store);
	if (err)
		return err;
	pthread_mutex_lock(&cap->lock);
	err = seal_locked(&s, ref, &oid);
	pthread_mutex_unlock(&cap->lock);
	if (err)
		return err;
	s.report.total_ms = fdry_now_ms() - s.start_ms;
	fdry_count(FDRY_METRIC_SEALS, 1);
	fdry_count_ms(FDRY_METRIC_SEAL_NS, s.report.total_ms);
	fdry_store_note_capture(store, &oid, fdry_now_ms() - cap->begun_ms);
	if (id)
		fdry_oid_hex(&oid, id);
	return fdry_report_give(&s.report, sizeof(s.report), report);
}
