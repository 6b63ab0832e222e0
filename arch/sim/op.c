// SPDX-License-Identifier: Apache-2.0
/*
 * op.c - operations: running, copying and releasing them.
 *
 * An operation runs on a thread that holds no lock. If a kernel or a copy touches unmapped memory,
 * the operation ends with ILLEGAL_ADDRESS, as on a GPU: a signal handler catches the fault, but
 * only while a thread runs an operation. The effects up to the fault stay.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arch/sim/code.h"

static __thread sigjmp_buf *guard;
static __thread bool in_callback;
static __thread unsigned int *conditions;
static __thread size_t nconditions;
static struct sigaction old_segv, old_bus;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void on_fault(int sig, siginfo_t *info, void *uc)
{
	const struct sigaction *old = sig == SIGBUS ? &old_bus : &old_segv;

	if (guard)
		siglongjmp(*guard, 1);
	if (old->sa_flags & SA_SIGINFO)
		old->sa_sigaction(sig, info, uc);
	else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
		old->sa_handler(sig);
	else
		sigaction(sig, old, NULL); /* the fault occurs again, with the default action */
}

static void guard_install(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault,
				.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGSEGV, &sa, &old_segv);
	sigaction(SIGBUS, &sa, &old_bus);
}

/* Blocks run one after the other, each with the shared memory that the one before left. */
static CUresult launch_run(const struct sim_launch *l, void *shared)
{
	const struct sim_kernel_record *k = l->func->record;
	struct sim_block b = {
		.grid = { l->grid[0], l->grid[1], l->grid[2] },
		.dim = { l->block[0], l->block[1], l->block[2] },
		.shared = shared,
		.shared_bytes = k->static_shared + l->shared,
		.conditions = conditions,
		.nconditions = nconditions,
	};

	for (b.index.z = 0; b.index.z < b.grid.z; b.index.z++)
		for (b.index.y = 0; b.index.y < b.grid.y; b.index.y++)
			for (b.index.x = 0; b.index.x < b.grid.x; b.index.x++)
				k->entry(&b, l->args);
	return CUDA_SUCCESS;
}

static CUresult copy_run(const struct sim_copy *c)
{
	const CUDA_MEMCPY3D *p = &c->p;
	struct sim_plane src, dst;
	size_t y, z;

	sim_lock(); /* to find arrays */
	src = sim_copy_src(p);
	dst = sim_copy_dst(p);
	sim_unlock();
	if ((!src.base || !dst.base) && p->WidthInBytes && p->Height && p->Depth)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (z = 0; z < p->Depth; z++)
		for (y = 0; y < p->Height; y++)
			memmove(sim_plane_row(&dst, y, z), sim_plane_row(&src, y, z),
				p->WidthInBytes);
	return CUDA_SUCCESS;
}

/* Write one element, then copy the filled part again and again. That takes few large copies, which
 * matters because a sanitizer checks each. */
static void row_set(unsigned char *row, const CUDA_MEMSET_NODE_PARAMS *p)
{
	size_t size = p->width * p->elementSize, done, part;

	if (!size)
		return;
	memcpy(row, &p->value, p->elementSize);
	for (done = p->elementSize; done < size; done += part) {
		part = done < 4096 ? done : 4096;
		if (part > size - done)
			part = size - done;
		memcpy(row + done, row, part);
	}
}

static CUresult set_run(const CUDA_MEMSET_NODE_PARAMS *p)
{
	size_t y;

	for (y = 0; y < p->height; y++)
		row_set((unsigned char *)(uintptr_t)p->dst + y * p->pitch, p);
	return CUDA_SUCCESS;
}

/* Whether a wait for @value with the low bits of @flags is over. @value and @now are of 64 bits, or
 * extended from 32 with their sign. */
static bool wait_over(unsigned int flags, int64_t now, int64_t value)
{
	switch (flags) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return now & value;
	case CU_STREAM_WAIT_VALUE_NOR:
		return ~(now | value);
	default:
		return (int64_t)((uint64_t)now - (uint64_t)value) >= 0;
	}
}

static void memop_run(const CUstreamBatchMemOpParams *op)
{
	/* cuda.h writes values of all sizes to the same place. */
	void *at = (void *)(uintptr_t)op->writeValue.address;
	const int64_t *wide = at;
	const int32_t *narrow = at;

	switch (op->operation) {
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		memcpy(at, &op->writeValue.value, 4);
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		memcpy(at, &op->writeValue.value64, 8);
		break;
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		while (!wait_over(op->waitValue.flags,
				  (int32_t)((uint32_t)__atomic_load_n(narrow, __ATOMIC_ACQUIRE) -
					    (op->waitValue.flags ? 0 : op->waitValue.value)),
				  op->waitValue.flags ? (int32_t)op->waitValue.value : 0))
			usleep(20);
		break;
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		while (!wait_over(op->waitValue.flags, __atomic_load_n(wide, __ATOMIC_ACQUIRE),
				  (int64_t)op->waitValue.value64))
			usleep(20);
		break;
	default:
		break;
	}
}

static CUresult memops_run(const struct sim_memops *m)
{
	unsigned int i;

	for (i = 0; i < m->count; i++)
		memop_run(&m->list[i]);
	return CUDA_SUCCESS;
}

static CUresult record_run(const struct sim_event_op *e)
{
	struct sim_fence *f;
	CUresult res = CUDA_SUCCESS;

	sim_lock();
	f = e->fence ? sim_fence_get(e->fence) : sim_event_arm(e->event);
	if (f)
		sim_fence_signal(f);
	else
		res = CUDA_ERROR_OUT_OF_MEMORY;
	sim_fence_put(f);
	sim_unlock();
	return res;
}

static CUresult wait_run(const struct sim_event_op *e)
{
	struct sim_fence *f;

	sim_lock();
	f = e->fence ? e->fence : e->event->fence;
	if (f) {
		sim_fence_get(f);
		sim_fence_wait(f);
		sim_fence_put(f);
	}
	sim_unlock();
	return CUDA_SUCCESS;
}

static CUresult memory_run(const struct sim_op *op, void *shared)
{
	switch (op->kind) {
	case SIM_OP_KERNEL:
		return launch_run(&op->launch, shared);
	case SIM_OP_MEMCPY:
		return copy_run(&op->copy);
	case SIM_OP_MEMOPS:
		return memops_run(&op->memops);
	default:
		return set_run(&op->set);
	}
}

static CUresult guarded_run(const struct sim_op *op, void *shared)
{
	sigjmp_buf here, *outer = guard;
	CUresult res;

	pthread_once(&once, guard_install);
	if (sigsetjmp(here, 1)) {
		guard = outer;
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	guard = &here;
	res = memory_run(op, shared);
	guard = outer;
	return res;
}

static CUresult kernel_run(const struct sim_op *op)
{
	size_t size = (size_t)op->launch.func->record->static_shared + op->launch.shared;
	void *shared = NULL;
	CUresult res;

	if (size && posix_memalign(&shared, 64, size))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	sim_memory_poison(shared, size);
	res = guarded_run(op, shared);
	free(shared);
	return res;
}

void sim_op_conditions(unsigned int *values, size_t count)
{
	conditions = values;
	nconditions = count;
}

bool sim_op_in_callback(void)
{
	return in_callback;
}

CUresult sim_op_run(const struct sim_op *op, struct sim_ctx *ctx)
{
	switch (op->kind) {
	case SIM_OP_KERNEL:
		return kernel_run(op);
	case SIM_OP_MEMCPY:
	case SIM_OP_MEMSET:
	case SIM_OP_MEMOPS:
		return guarded_run(op, NULL);
	case SIM_OP_SEMAS_SIGNAL:
	case SIM_OP_SEMAS_WAIT:
		return sim_semas_run(op);
	case SIM_OP_EVENT_RECORD:
		return record_run(&op->event);
	case SIM_OP_EVENT_WAIT:
		return wait_run(&op->event);
	case SIM_OP_HOST:
		in_callback = true;
		op->host.fn(op->host.userData);
		in_callback = false;
		return CUDA_SUCCESS;
	case SIM_OP_CALL:
		return op->call.run(op->call.data, ctx);
	case SIM_OP_NONE:
		break;
	}
	return CUDA_SUCCESS;
}

/* Copy the bytes to new memory; NULL if there are none, or memory is short. */
static void *bytes_dup(const void *p, size_t size)
{
	void *q = NULL;

	if (size && !posix_memalign(&q, 16, size))
		memcpy(q, p, size);
	return q;
}

static CUresult launch_copy(const struct sim_launch *l, struct sim_op *ret)
{
	struct sim_launch *to = &ret->launch;

	to->attrs = bytes_dup(l->attrs, l->nattrs * sizeof(*l->attrs));
	to->args = sim_args_new(l->func->record, l->args, l->args_size);
	if ((l->nattrs && !to->attrs) || !to->args) {
		free(to->attrs);
		free(to->args);
		ret->kind = SIM_OP_NONE;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_obj_get(&l->func->obj);
	return CUDA_SUCCESS;
}

static CUresult memops_copy(const struct sim_memops *m, struct sim_op *ret)
{
	ret->memops.list = calloc(m->count + 1, sizeof(*m->list));
	if (!ret->memops.list) {
		ret->kind = SIM_OP_NONE;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(ret->memops.list, m->list, m->count * sizeof(*m->list));
	return CUDA_SUCCESS;
}

/* A copied memcpy reads the caller's source, not the staged bytes. */
CUresult sim_op_copy(const struct sim_op *op, struct sim_op *ret)
{
	if (op->kind == SIM_OP_CALL || (op->kind == SIM_OP_MEMCPY && op->copy.staged))
		return CUDA_ERROR_NOT_SUPPORTED;
	*ret = *op;
	if (op->kind == SIM_OP_KERNEL)
		return launch_copy(&op->launch, ret);
	if (op->kind == SIM_OP_MEMOPS)
		return memops_copy(&op->memops, ret);
	if (op->kind == SIM_OP_SEMAS_SIGNAL || op->kind == SIM_OP_SEMAS_WAIT)
		return sim_semas_copy(op, ret);
	if (op->kind == SIM_OP_EVENT_RECORD || op->kind == SIM_OP_EVENT_WAIT) {
		sim_obj_get(&op->event.event->obj);
		if (op->event.fence)
			sim_fence_get(op->event.fence);
	}
	return CUDA_SUCCESS;
}

void sim_op_release(struct sim_op *op)
{
	switch (op->kind) {
	case SIM_OP_KERNEL:
		sim_obj_put(&op->launch.func->obj);
		free(op->launch.attrs);
		free(op->launch.args);
		break;
	case SIM_OP_MEMCPY:
		free(op->copy.staged);
		break;
	case SIM_OP_MEMOPS:
		free(op->memops.list);
		break;
	case SIM_OP_SEMAS_SIGNAL:
	case SIM_OP_SEMAS_WAIT:
		sim_semas_release(&op->semas);
		break;
	case SIM_OP_EVENT_RECORD:
	case SIM_OP_EVENT_WAIT:
		sim_obj_put(&op->event.event->obj);
		sim_fence_put(op->event.fence);
		break;
	case SIM_OP_CALL:
		if (op->call.release)
			op->call.release(op->call.data);
		break;
	default:
		break;
	}
	op->kind = SIM_OP_NONE;
}
