// SPDX-License-Identifier: Apache-2.0
/*
 * semaphore.c - semaphores of other APIs, in streams and as nodes of graphs.
 *
 * The first 8 bytes of a semaphore's file are its value, which other programs may share. A timeline
 * semaphore is signalled with a value, and a wait ends when the value is not less. Any other
 * semaphore has the value 1 if it is signalled, and a wait makes it 0.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arch/sim/graph.h"

#define SEMAS_MAX 1024u

_Static_assert(sizeof(union sim_sema_params) == sizeof(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS) &&
		       sizeof(union sim_sema_params) == sizeof(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS),
	       "parameters of both kinds are arrays of the union");

struct sim_sema {
	struct sim_obj obj;
	uint64_t *value;
	bool timeline;
};

static void sema_release(struct sim_obj *obj)
{
	struct sim_sema *s = (struct sim_sema *)obj;

	munmap(s->value, sizeof(*s->value));
	free(s);
}

static bool is_clean(const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *d)
{
	size_t i;

	for (i = 0; i < sizeof(d->reserved) / sizeof(d->reserved[0]); i++)
		if (d->reserved[i])
			return false;
	return !d->flags;
}

static uint64_t *value_map(int fd)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) || st.st_size < (off_t)sizeof(uint64_t))
		return NULL;
	p = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* The file belongs to the driver afterwards. */
CUresult cuImportExternalSemaphore(CUexternalSemaphore *ret,
				   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
	struct sim_sema *s;
	struct sim_ctx *ctx;
	CUresult res;

	SIM_ENTER(cuImportExternalSemaphore);
	if (!ret || !desc || !is_clean(desc))
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD &&
	    desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	SIM_TRY(sim_ctx_current(&ctx));
	s = calloc(1, sizeof(*s));
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->timeline = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
	s->value = value_map(desc->handle.fd);
	if (!s->value) {
		free(s);
		return CUDA_ERROR_INVALID_VALUE;
	}
	res = sim_obj_open(&s->obj, SIM_SEMAPHORE, sema_release);
	if (res) {
		sema_release(&s->obj);
		return res;
	}
	close(desc->handle.fd);
	*ret = SIM_HANDLE(CUexternalSemaphore, s);
	return CUDA_SUCCESS;
}

/* Nodes keep what they need of it. */
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
	struct sim_sema *s;

	SIM_ENTER(cuDestroyExternalSemaphore);
	s = sim_find(handle, SIM_SEMAPHORE);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_obj_close(&s->obj);
	return CUDA_SUCCESS;
}

static void sema_signal(struct sim_sema *s, uint64_t value)
{
	__atomic_store_n(s->value, s->timeline ? value : 1, __ATOMIC_RELEASE);
}

static bool sema_take(struct sim_sema *s, uint64_t value)
{
	uint64_t set = 1;

	if (s->timeline)
		return __atomic_load_n(s->value, __ATOMIC_ACQUIRE) >= value;
	return __atomic_compare_exchange_n(s->value, &set, 0, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE);
}

CUresult sim_semas_run(const struct sim_op *op)
{
	const struct sim_semas *m = &op->semas;
	unsigned int i;

	for (i = 0; i < m->count; i++) {
		if (op->kind == SIM_OP_SEMAS_SIGNAL)
			sema_signal(m->list[i], m->params[i].signal.params.fence.value);
		else
			while (!sema_take(m->list[i], m->params[i].wait.params.fence.value))
				usleep(20);
	}
	return CUDA_SUCCESS;
}

static unsigned int flags_of(enum sim_op_kind kind, const union sim_sema_params *p)
{
	return kind == SIM_OP_SEMAS_SIGNAL ? p->signal.flags : p->wait.flags;
}

static CUresult semas_hold(const CUexternalSemaphore *handles, struct sim_op *op)
{
	struct sim_semas *m = &op->semas;
	unsigned int i;

	for (i = 0; i < m->count; i++) {
		struct sim_sema *s = sim_find(handles[i], SIM_SEMAPHORE);

		if (!s)
			return CUDA_ERROR_INVALID_HANDLE;
		if (flags_of(op->kind, &m->params[i]))
			return CUDA_ERROR_INVALID_VALUE;
		sim_obj_get(&s->obj);
		m->list[i] = s;
	}
	return CUDA_SUCCESS;
}

/* Memory for @count semaphores with the parameters @params. */
static CUresult semas_alloc(enum sim_op_kind kind, unsigned int count, const void *params,
			    const CUexternalSemaphore *handles, struct sim_op *ret)
{
	*ret = (struct sim_op){ .kind = kind, .semas = { .count = count } };
	ret->semas.list = calloc(count, sizeof(*ret->semas.list));
	ret->semas.handles = calloc(count, sizeof(*ret->semas.handles));
	ret->semas.params = calloc(count, sizeof(*ret->semas.params));
	if (!ret->semas.list || !ret->semas.handles || !ret->semas.params) {
		sim_op_release(ret);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(ret->semas.handles, handles, count * sizeof(*handles));
	memcpy(ret->semas.params, params, count * sizeof(*ret->semas.params));
	return CUDA_SUCCESS;
}

CUresult sim_semas_make(enum sim_op_kind kind, const CUexternalSemaphore *handles,
			const void *params, unsigned int count, struct sim_op *ret)
{
	CUresult res;

	if (!handles || !params || !count || count > SEMAS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(semas_alloc(kind, count, params, handles, ret));
	res = semas_hold(handles, ret);
	if (res)
		sim_op_release(ret);
	return res;
}

CUresult sim_semas_copy(const struct sim_op *op, struct sim_op *ret)
{
	const struct sim_semas *m = &op->semas;
	unsigned int i;

	SIM_TRY(semas_alloc(op->kind, m->count, m->params, m->handles, ret));
	for (i = 0; i < m->count; i++) {
		sim_obj_get((struct sim_obj *)m->list[i]);
		ret->semas.list[i] = m->list[i];
	}
	return CUDA_SUCCESS;
}

void sim_semas_release(struct sim_semas *m)
{
	unsigned int i;

	for (i = 0; m->list && i < m->count; i++)
		sim_obj_put((struct sim_obj *)m->list[i]);
	free(m->list);
	free(m->handles);
	free(m->params);
}

static CUresult semas_submit(enum sim_op_kind kind, const CUexternalSemaphore *handles,
			     const void *params, unsigned int count, CUstream stream)
{
	struct sim_stream *s;
	struct sim_op op;

	SIM_TRY(sim_stream_find(stream, &s));
	SIM_TRY(sim_semas_make(kind, handles, params, count, &op));
	return sim_stream_submit(s, &op, NULL);
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *handles,
					 const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
					 unsigned int count, CUstream stream)
{
	SIM_ENTER(cuSignalExternalSemaphoresAsync);
	return semas_submit(SIM_OP_SEMAS_SIGNAL, handles, params, count, stream);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *handles,
				       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
				       unsigned int count, CUstream stream)
{
	SIM_ENTER(cuWaitExternalSemaphoresAsync);
	return semas_submit(SIM_OP_SEMAS_WAIT, handles, params, count, stream);
}
