/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.h - device code for the software driver: macros to write it, records for the driver.
 *
 * A "cubin" of the software driver is a shared object for this machine, compiled from C
 * that includes this header. It must be linked with -Bsymbolic. An ELF note (name "Foundry",
 * type SIM_NOTE_TYPE) identifies it, and it holds one struct sim_module_record under the name
 * fdry_sim_module. Each kernel is also a dynamic function symbol of its
 * own name, each module variable (SIM_VARIABLE) a dynamic data symbol.
 *
 * Parameters lie in the parameter buffer like members of a C struct, as in CUDA: each at a
 * multiple of its alignment, in order, nothing after the last.
 *
 *	SIM_KERNEL(saxpy, (float, a), (const float *, x), (float *, y), (int, n))
 *	{
 *		unsigned int i = SIM_X;
 *
 *		if (i < (unsigned int)n)
 *			y[i] += a * x[i];
 *	}
 *
 * A SIM_KERNEL body runs once for each thread, one after the other, so threads of a block
 * cannot wait for each other. A SIM_BLOCK_KERNEL body runs once for each block and loops over
 * its threads itself. SIM_SHARED is its shared memory: static bytes first, then the launch's
 * dynamic ones; it is not cleared.
 */
#ifndef FDRY_ARCH_SIM_KERNEL_H
#define FDRY_ARCH_SIM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define SIM_ABI 1u
#define SIM_MAGIC 0x6d697346u /* "Fsim" */
#define SIM_NOTE_NAME "Foundry"
#define SIM_NOTE_TYPE 1u
#define SIM_MODULE_SYMBOL "fdry_sim_module"
#define SIM_PTX_MARK "// software driver object: "

struct sim_dim3 {
	unsigned int x, y, z;
};

/* One block of a launch. */
struct sim_block {
	struct sim_dim3 grid, dim; /* blocks in the grid, threads in the block */
	struct sim_dim3 index;     /* which block */
	unsigned char *shared;
	unsigned int shared_bytes; /* static and dynamic */
	unsigned int *conditions;  /* of the graph that runs, by handle from 1 */
	size_t nconditions;
};

struct sim_thread {
	const struct sim_block *block;
	struct sim_dim3 index; /* which thread of the block */
};

struct sim_param_record {
	uint32_t offset, size; /* bytes in the parameter buffer */
};

/* Run one block. @params: the parameter buffer, 16-byte aligned. */
typedef void (*sim_entry_fn)(const struct sim_block *block, const void *params);

struct sim_kernel_record {
	const char *name;
	sim_entry_fn entry;
	const struct sim_param_record *params;
	uint32_t nparams;
	uint32_t static_shared; /* bytes */
};

struct sim_module_record {
	uint32_t magic, abi;
	const struct sim_kernel_record *const *kernels, *const *kernels_end;
};

#define SIM_EXPORT __attribute__((visibility("default")))
/* Before a module variable: SIM_VARIABLE int counter = 7; not const, since the host may write it.
 */
#define SIM_VARIABLE __attribute__((visibility("default"), used))

/* Inside a SIM_KERNEL: this thread's place in the whole grid, along one axis. */
#define SIM_X (sim->block->index.x * sim->block->dim.x + sim->index.x)
#define SIM_Y (sim->block->index.y * sim->block->dim.y + sim->index.y)
#define SIM_Z (sim->block->index.z * sim->block->dim.z + sim->index.z)
/* Inside a SIM_BLOCK_KERNEL. */
#define SIM_SHARED (sim->shared)

/* Set the condition of a handle, as cudaGraphSetConditional() does. */
static inline void sim_condition_set(const struct sim_block *block, uint64_t handle,
				     unsigned int value)
{
	if (handle - 1 < block->nconditions)
		block->conditions[handle - 1] = value;
}

/* SIM_EACH_(macro, name, (type, member), ...): macro(name, type, member) for each pair. */
#define SIM_PARENS_ ()
#define SIM_EVAL_(...) SIM_EVAL4_(SIM_EVAL4_(SIM_EVAL4_(__VA_ARGS__)))
#define SIM_EVAL4_(...) SIM_EVAL3_(SIM_EVAL3_(SIM_EVAL3_(__VA_ARGS__)))
#define SIM_EVAL3_(...) SIM_EVAL2_(SIM_EVAL2_(SIM_EVAL2_(__VA_ARGS__)))
#define SIM_EVAL2_(...) SIM_EVAL1_(SIM_EVAL1_(SIM_EVAL1_(__VA_ARGS__)))
#define SIM_EVAL1_(...) __VA_ARGS__
#define SIM_EACH_(m, name, ...) __VA_OPT__(SIM_EVAL_(SIM_EACH_STEP_(m, name, __VA_ARGS__)))
#define SIM_EACH_STEP_(m, name, pair, ...) \
	m(name, SIM_UNPACK_ pair) __VA_OPT__(SIM_EACH_AGAIN_ SIM_PARENS_(m, name, __VA_ARGS__))
#define SIM_EACH_AGAIN_() SIM_EACH_STEP_
#define SIM_UNPACK_(...) __VA_ARGS__

#define SIM_MEMBER_(name, pair) SIM_MEMBER2_(pair)
#define SIM_MEMBER2_(type, member) type member;
#define SIM_RECORD_(name, pair) SIM_RECORD2_(name, pair)
#define SIM_RECORD2_(name, type, member) \
	{ (uint32_t)offsetof(struct name##_params, member), (uint32_t)sizeof(type) },
#define SIM_FORMAL_(name, pair) SIM_FORMAL2_(pair)
#define SIM_FORMAL2_(type, member) , type member
#define SIM_ACTUAL_(name, pair) SIM_ACTUAL2_(pair)
#define SIM_ACTUAL2_(type, member) , params_->member

#define SIM_DESCRIBE_(kernel, shared, ...)                                                        \
	struct kernel##_params {                                                                  \
		SIM_EACH_(SIM_MEMBER_, kernel, __VA_ARGS__)                                       \
	};                                                                                        \
	SIM_EXPORT void kernel(const struct sim_block *block_, const void *buffer_);              \
	static const struct sim_param_record kernel##_list[] = {                                  \
		SIM_EACH_(SIM_RECORD_, kernel, __VA_ARGS__) { 0, 0 }                              \
	};                                                                                        \
	static const struct sim_kernel_record kernel##_record = {                                 \
		#kernel, kernel, kernel##_list,                                                   \
		(uint32_t)(sizeof(kernel##_list) / sizeof(kernel##_list[0]) - 1), shared          \
	};                                                                                        \
	static const struct sim_kernel_record *const kernel##_entry                               \
		__attribute__((section("sim_kernels"), used)) = &kernel##_record

#define SIM_UP_TO_(axis) \
	for (thread_.index.axis = 0; thread_.index.axis < block_->dim.axis; thread_.index.axis++)

#define SIM_KERNEL(kernel, ...)                                                                   \
	SIM_DESCRIBE_(kernel, 0, __VA_ARGS__);                                                    \
	static void kernel##_thread(const struct sim_thread *sim                                  \
				    SIM_EACH_(SIM_FORMAL_, kernel, __VA_ARGS__));                 \
	void kernel(const struct sim_block *block_, const void *buffer_)                          \
	{                                                                                         \
		const struct kernel##_params *params_ = buffer_;                                  \
		struct sim_thread thread_ = { block_, { 0, 0, 0 } };                              \
	\
		(void)params_;                                                                    \
		SIM_UP_TO_(z)                                                                     \
		SIM_UP_TO_(y)                                                                     \
		SIM_UP_TO_(x)                                                                     \
		kernel##_thread(&thread_ SIM_EACH_(SIM_ACTUAL_, kernel, __VA_ARGS__));            \
	}                                                                                         \
	static void kernel##_thread(const struct sim_thread *sim                                  \
				    SIM_EACH_(SIM_FORMAL_, kernel, __VA_ARGS__))

#define SIM_BLOCK_KERNEL(kernel, static_shared, ...)                                              \
	SIM_DESCRIBE_(kernel, static_shared, __VA_ARGS__);                                        \
	static void kernel##_block(const struct sim_block *sim                                    \
				   SIM_EACH_(SIM_FORMAL_, kernel, __VA_ARGS__));                  \
	void kernel(const struct sim_block *block_, const void *buffer_)                          \
	{                                                                                         \
		const struct kernel##_params *params_ = buffer_;                                  \
	\
		(void)params_;                                                                    \
		kernel##_block(block_ SIM_EACH_(SIM_ACTUAL_, kernel, __VA_ARGS__));               \
	}                                                                                         \
	static void kernel##_block(const struct sim_block *sim                                    \
				   SIM_EACH_(SIM_FORMAL_, kernel, __VA_ARGS__))

/* The note that identifies an object. */
struct sim_note {
	uint32_t namesz, descsz, type;
	char name[8];
	uint32_t abi;
};

#ifndef SIM_DRIVER /* compiling device code */

__attribute__((section(".note.foundry.sim"), used, aligned(4)))
static const struct sim_note sim_note = {
	sizeof(SIM_NOTE_NAME), sizeof(uint32_t), SIM_NOTE_TYPE, SIM_NOTE_NAME, SIM_ABI
};

extern const struct sim_kernel_record *const __start_sim_kernels[]
	__attribute__((visibility("hidden"), weak));
extern const struct sim_kernel_record *const __stop_sim_kernels[]
	__attribute__((visibility("hidden"), weak));

SIM_EXPORT extern const struct sim_module_record fdry_sim_module;
__attribute__((weak)) const struct sim_module_record fdry_sim_module = {
	SIM_MAGIC, SIM_ABI, __start_sim_kernels, __stop_sim_kernels
};

#endif
#endif
