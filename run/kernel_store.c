// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_store.c - a cache's compiled code in its store (image/compiled.h).
 *
 * The cache also works if its store fails: failures here are counted, and the code is compiled.
 */
#include <string.h>

#include "image/compiled.h"
#include "run/kernel_cache.h"
#include "lib/log.h"

static const struct fdry_wait CLAIM_WAIT = { .ms = 60000 };

static struct fdry_compiled compiled_of(const struct fdry_kernels_unit *u)
{
	struct fdry_compiled c = {
		.facts = u->facts,
		.nfacts = FDRY_COMPILED_FACTS,
		.key = u->key,
	};

	memcpy(c.content, u->content, sizeof(c.content));
	return c;
}

/* Log a failure. Returns true if the stored code is damaged or missing. Otherwise the store does
 * not work, which is counted. */
static bool is_damage(struct fdry_kernels *k, const char *doing, int err)
{
	fdry_info("kernels: %s: %s", doing, fdry_last_error());
	if (err == -FDRY_E_CORRUPT || err == -FDRY_E_BADIMAGE || err == -FDRY_E_NOENT ||
	    err == -FDRY_E_VERSION)
		return true;
	fdry_kernels_add(k, store_errors, 1);
	return false;
}

void fdry_kernels_store_get(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			    struct fdry_buf *ret, bool *found, bool *damaged)
{
	const struct fdry_compiled c = compiled_of(u);
	double begin = fdry_now_ms(), took;
	int err;

	*found = false;
	if (!k->store || !u->keep)
		return;
	err = fdry_compiled_get(k->store, &c, ret, found);
	if (err) {
		*found = false;
		*damaged = is_damage(k, "compiled code cannot be read from the store", err) ||
			   *damaged;
	}
	took = fdry_now_ms() - begin;
	fdry_kernels_add(k, store_ms, took);
	fdry_kernels_trace(k, u->title, *found ? "found in the store" : "not in the store", took,
			   ret->len);
}

/* --- writing --- */

void fdry_kernels_store_put(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			    struct fdry_span cubin)
{
	const struct fdry_compiled c = compiled_of(u);
	double begin = fdry_now_ms(), took;
	int err;

	if (!k->store || !u->keep)
		return;
	err = fdry_compiled_put(k->store, &c, cubin);
	took = fdry_now_ms() - begin;
	fdry_kernels_add(k, store_ms, took);
	if (err == -FDRY_E_RACED)
		return; /* another process compiled the same and was faster */
	if (err) {
		if (is_damage(k, "compiled code cannot be written to the store", err))
			fdry_kernels_add(k, store_damaged, 1);
		return;
	}
	fdry_kernels_add(k, store_saves, 1);
	fdry_kernels_add(k, store_bytes, cubin.len);
	fdry_kernels_trace(k, u->title, "saved in the store", took, cubin.len);
}

struct fdry_claim *fdry_kernels_store_claim(struct fdry_kernels *k,
					    const struct fdry_kernels_unit *u)
{
	struct fdry_claim *claim = NULL;
	bool waited;

	if (!k->store || !u->keep)
		return NULL;
	if (fdry_claim_begin(k->store, &u->key, sizeof(u->key), &CLAIM_WAIT, &waited, &claim))
		fdry_debug("kernels: no claim: %s", fdry_last_error());
	return claim;
}
