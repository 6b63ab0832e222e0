// SPDX-License-Identifier: Apache-2.0
/*
 * proc.c - cuGetProcAddress: a look-up of a wrapped function returns the interposer's.
 *
 * The driver's answer decides. If it is the address of a hooked function, it is replaced by the
 * hook, for every name, version and flag; any other answer stays. So a version of a hooked name
 * that hooks.def lacks is returned unwrapped. That is counted, since calls of it bypass the
 * interposer.
 */
#include "hook/internal.h"

#include <string.h>

#include "lib/log.h"

/* The stream variants of hooks.def, as flags. */
#define ANY CU_GET_PROC_ADDRESS_DEFAULT
#define LEGACY CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define PER_THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

static const struct hook {
	const char *name;
	int since;
	int stream;
	enum fdry_jump slot;
	void *ours;
} hooks[] = {
#define HOOK(symbol, name, since, stream, params) \
	{ #name, since, stream, FDRY_JUMP_##symbol, (void *)symbol },
#include "hook/hooks.def"
#undef HOOK
};

#define HOOKS (sizeof(hooks) / sizeof(hooks[0]))

/* The driver's addresses of each hook: the exported one, and those that its cuGetProcAddress
 * returns with the flags of each stream variant. Threads fill the table without a lock, for the
 * reason in find.c, and may do so concurrently. */
static void *exported[HOOKS];
static void *reported[HOOKS][2];
static bool learnt;
static uint64_t unwrapped;

static void *ask(const struct hook *h, int stream)
{
	CUdriverProcAddressQueryResult status;
	void *ret = NULL;

	if (fdry_jump_lookup(FDRY_JUMP_cuGetProcAddress_v2)) {
		if (fdry_real(cuGetProcAddress_v2)(h->name, &ret, h->since, stream, &status))
			ret = NULL;
	} else if (fdry_real(cuGetProcAddress)(h->name, &ret, h->since, stream)) {
		ret = NULL;
	}
	return ret;
}

static void learn(void)
{
	size_t i;

	for (i = 0; i < HOOKS; i++) {
		__atomic_store_n(&exported[i], fdry_jump_lookup(hooks[i].slot), __ATOMIC_RELAXED);
		__atomic_store_n(&reported[i][0], ask(&hooks[i], hooks[i].stream),
				 __ATOMIC_RELAXED);
		__atomic_store_n(&reported[i][1],
				 ask(&hooks[i], hooks[i].stream ? hooks[i].stream : PER_THREAD),
				 __ATOMIC_RELAXED);
	}
	__atomic_store_n(&learnt, true, __ATOMIC_RELEASE);
}

/* Exported addresses are compared first, since a driver may return a newer function for an old
 * version. */
static void *ours_for(void *real)
{
	size_t i;

	for (i = 0; i < HOOKS; i++)
		if (__atomic_load_n(&exported[i], __ATOMIC_RELAXED) == real)
			return hooks[i].ours;
	for (i = 0; i < HOOKS; i++)
		if (__atomic_load_n(&reported[i][0], __ATOMIC_RELAXED) == real ||
		    __atomic_load_n(&reported[i][1], __ATOMIC_RELAXED) == real)
			return hooks[i].ours;
	return NULL;
}

static bool is_hooked_name(const char *name)
{
	size_t i;

	for (i = 0; i < HOOKS; i++)
		if (!strcmp(hooks[i].name, name))
			return true;
	return false;
}

static void substitute(const char *name, int version, void **ret)
{
	void *ours;

	if (!__atomic_load_n(&learnt, __ATOMIC_ACQUIRE))
		learn();
	ours = ours_for(*ret);
	if (ours) {
		*ret = ours;
	} else if (is_hooked_name(name)) {
		__atomic_fetch_add(&unwrapped, 1, __ATOMIC_RELAXED);
		fdry_warn("interposer: %s of version %d is not known and is returned unwrapped",
			  name, version);
	}
}

uint64_t fdry_proc_unwrapped(void)
{
	return __atomic_load_n(&unwrapped, __ATOMIC_RELAXED);
}

CUresult cuGetProcAddress(const char *name, void **ret, int version, cuuint64_t flags)
{
	CUresult res = fdry_real(cuGetProcAddress)(name, ret, version, flags);

	if (!res && ret && *ret)
		substitute(name, version, ret);
	else if (res == CUDA_ERROR_NO_DEVICE && ret)
		*ret = NULL;
	return res;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUresult res = fdry_real(cuGetProcAddress_v2)(name, ret, version, flags, status);

	if (!res && ret && *ret)
		substitute(name, version, ret);
	else if (res == CUDA_ERROR_NO_DEVICE && ret)
		*ret = NULL;
	return res;
}
