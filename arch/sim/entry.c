// SPDX-License-Identifier: Apache-2.0
/*
 * entry.c - the table of exported functions, their look-up, and the one lock.
 *
 * The variants for the per-thread default stream are the same functions. So a NULL stream means the
 * legacy stream, which orders more work, never less.
 */
#include "arch/sim/sim.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "arch/sim/fault.h"

#define DRIVER_VERSION 13000

enum entry_kind { PLAIN, PTSZ, PTDS, EARLY, QUIET };

struct sim_entry {
	const char *symbol;
	const char *name;
	int since;
	enum entry_kind kind;
	void *fn;
};

static const struct sim_entry entries[SIM_FNS] = {
#define SIM_FN(symbol, name, since, kind) \
	[SIM_FN_##symbol] = { #symbol, #name, since, kind, (void *)symbol },
#include "arch/sim/entry.def"
#undef SIM_FN
};

/* The variants are jumps, since an alias must lie in the same file as its function. */
#if defined(__x86_64__)
#define JUMP "jmp "
#elif defined(__aarch64__)
#define JUMP "b "
#else
#error "no jump instruction is known for this machine"
#endif
#define VARIANT(symbol, variant)                                                     \
	__asm__(".pushsection .text\n\t.globl " variant "\n\t.type " variant         \
		", %function\n" variant ":\n\t" JUMP #symbol "\n\t.popsection");
#define VARIANT_PLAIN(symbol)
#define VARIANT_EARLY(symbol)
#define VARIANT_QUIET(symbol)
#define VARIANT_PTSZ(symbol) VARIANT(symbol, #symbol "_ptsz")
#define VARIANT_PTDS(symbol) VARIANT(symbol, #symbol "_ptds")
#define SIM_FN(symbol, name, since, kind) VARIANT_##kind(symbol)
#include "arch/sim/entry.def"
#undef SIM_FN

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static bool
	forked; /* a child of an initialised process, which has neither threads nor devices */

void sim_lock(void)
{
	pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

pthread_mutex_t *sim_mutex(void)
{
	return &lock;
}

CUresult sim_enter(enum sim_fn fn)
{
	CUresult res = CUDA_SUCCESS;

	if (entries[fn].kind == QUIET)
		return CUDA_SUCCESS;
	if (forked && (entries[fn].kind != EARLY || fn == SIM_FN_cuInit))
		return CUDA_ERROR_NOT_INITIALIZED;
	res = sim_fault(fn);
	if (!res && sim_op_in_callback())
		res = CUDA_ERROR_NOT_PERMITTED;
	if (!res && entries[fn].kind != EARLY && !__atomic_load_n(&initialised, __ATOMIC_ACQUIRE))
		res = CUDA_ERROR_NOT_INITIALIZED;
	return res;
}

int sim_fn_index(const char *symbol, size_t len)
{
	int i;

	for (i = 0; i < SIM_FNS; i++)
		if (!strncmp(entries[i].symbol, symbol, len) && !entries[i].symbol[len])
			return i;
	return -2;
}

static int driver_version(void)
{
	const char *s = getenv("FDRY_SIM_DRIVER_VERSION");
	long n = s ? strtol(s, NULL, 10) : 0;

	return n > 0 && n <= INT_MAX ? (int)n : DRIVER_VERSION;
}

SIM_EXPORT int fdry_sim_version(void)
{
	return 1;
}

static void on_fork(void)
{
	forked = true;
}

CUresult cuInit(unsigned int flags)
{
	SIM_ENTER(cuInit);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_init());
	if (!initialised)
		pthread_atfork(NULL, NULL, on_fork);
	__atomic_store_n(&initialised, true, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	SIM_ENTER(cuDriverGetVersion);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = driver_version();
	return CUDA_SUCCESS;
}

/* The newest version of a function that both the caller and this driver know. */
static const struct sim_entry *entry_find(const char *name, int version, bool *known)
{
	const struct sim_entry *best = NULL;
	int i, driver = driver_version();

	*known = false;
	for (i = 0; i < SIM_FNS; i++) {
		if (strcmp(entries[i].name, name) || entries[i].since > driver)
			continue;
		*known = true;
		if (entries[i].since <= version && (!best || entries[i].since > best->since))
			best = &entries[i];
	}
	return best;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	const struct sim_entry *e;
	bool known;

	SIM_ENTER(cuGetProcAddress_v2);
	if (!symbol || !pfn || version > driver_version() ||
	    (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
				   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
		return CUDA_ERROR_INVALID_VALUE;
	e = entry_find(symbol, version, &known);
	*pfn = e ? e->fn : NULL;
	if (status)
		*status = e ? CU_GET_PROC_ADDRESS_SUCCESS :
			  known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT :
				  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	void *fn = NULL;
	CUresult res = cuGetProcAddress_v2(symbol, &fn, version, flags, NULL);

	if (res)
		return res;
	if (!fn)
		return CUDA_ERROR_NOT_FOUND;
	*pfn = fn;
	return CUDA_SUCCESS;
}

static const struct {
	const char *what;
	enum sim_type type;
} live_types[] = {
#define X(upper, lower) { #lower, SIM_##upper },
	SIM_TYPES(X)
#undef X
};

static const struct {
	const char *what;
	unsigned int kinds;
} live_ranges[] = {
	{ "allocation", 1u << SIM_MEM_DEVICE | 1u << SIM_MEM_MANAGED },
	{ "mapping", 1u << SIM_MEM_MAPPED },
	{ "host", 1u << SIM_MEM_PINNED | 1u << SIM_MEM_REGISTERED },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Kernels, functions and nodes are not counted: they are destroyed with their owners. */
static bool live_counts(enum sim_type type)
{
	return type != SIM_KERNEL && type != SIM_FUNC && type != SIM_NODE;
}

static long live_count(const char *what)
{
	bool found = !what || !strcmp(what, "reservation");
	unsigned long n = found ? sim_reservation_count() : 0;
	size_t i;

	for (i = 0; i < COUNT(live_types); i++)
		if (what ? !strcmp(what, live_types[i].what) : live_counts(live_types[i].type)) {
			n += sim_obj_count(live_types[i].type);
			found = true;
		}
	for (i = 0; i < COUNT(live_ranges); i++)
		if (!what || !strcmp(what, live_ranges[i].what)) {
			n += sim_range_count(live_ranges[i].kinds);
			found = true;
		}
	return found ? (long)n : -1;
}

SIM_EXPORT long fdry_sim_live(const char *what)
{
	long n;

	sim_lock();
	n = live_count(what);
	sim_unlock();
	return n;
}
