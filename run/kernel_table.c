// SPDX-License-Identifier: Apache-2.0
/*
 * kernel_table.c - a table of loaded modules by key, which orders their loads.
 *
 * If a key has no module, the first thread that requests it adds one and loads it without the lock,
 * while other threads wait for it. A module whose load fails leaves the table at once, and the last
 * waiting thread frees it. A call that reads a module without the lock counts as busy; unloading
 * waits until no call is busy.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/opts.h"
#include "run/kernel_cache.h"
#include "lib/telemetry.h"
#include "graph/module.h"
#include "store/store.h"

static struct fdry_kernels_module **bucket_of(struct fdry_kernels *k, const struct fdry_oid *key)
{
	return &k->modules[fdry_get32(key->b) % FDRY_KERNELS_BUCKETS];
}

static struct fdry_kernels_func **bucket_of_func(struct fdry_kernels *k, CUfunction func)
{
	return &k->funcs[((uintptr_t)func >> 4 ^ (uintptr_t)func >> 14) % FDRY_KERNELS_BUCKETS];
}

static struct fdry_kernels_module *module_find(struct fdry_kernels *k, const struct fdry_oid *key)
{
	struct fdry_kernels_module *m;

	for (m = *bucket_of(k, key); m && !fdry_oid_eq(&m->key, key); m = m->next)
		;
	return m;
}

static struct fdry_kernels_func *func_find(const struct fdry_kernels_module *m, const char *name)
{
	struct fdry_kernels_func *f;

	for (f = m->funcs; f && strcmp(f->name, name); f = f->next)
		;
	return f;
}

struct fdry_kernels_func *fdry_kernels_func(struct fdry_kernels *k, CUfunction func)
{
	struct fdry_kernels_func *f;

	pthread_mutex_lock(&k->lock);
	for (f = *bucket_of_func(k, func); f && f->func != func; f = f->by_func)
		;
	pthread_mutex_unlock(&k->lock);
	return f;
}

/* --- busy calls and users of modules; with the lock --- */

/* Wait until no module is being unloaded; none will be until busy_leave(). */
static void busy_enter(struct fdry_kernels *k)
{
	while (k->clearing)
		pthread_cond_wait(&k->changed, &k->lock);
	k->busy++;
}

static void busy_leave(struct fdry_kernels *k)
{
	if (!--k->busy)
		pthread_cond_broadcast(&k->changed);
}

static void module_remove(struct fdry_kernels *k, struct fdry_kernels_module *m)
{
	struct fdry_kernels_module **at = bucket_of(k, &m->key);

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
}

static void module_leave(struct fdry_kernels_module *m)
{
	if (!--m->users && m->state == FDRY_MODULE_FAILED)
		free(m);
}

/* --- loading --- */

/* Whether the result means that the code is bad. Other failures have other causes. */
static bool is_useless(CUresult res)
{
	return res == CUDA_ERROR_INVALID_IMAGE || res == CUDA_ERROR_NO_BINARY_FOR_GPU ||
	       res == CUDA_ERROR_INVALID_SOURCE || res == CUDA_ERROR_INVALID_VALUE ||
	       res == CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
}

static int module_load(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_span code, CUmodule *ret, CUresult *res)
{
	double begin = fdry_now_ms(), took;
	int err = fdry_module_load(k->drv, code, ret, res);

	took = fdry_now_ms() - begin;
	fdry_kernels_add(k, load_ms, took);
	fdry_kernels_trace(k, u->title, err ? "not loaded" : "loaded", took, code.len);
	return err ? fdry_fail_at(err, "%s", u->title) : 0;
}

/* Load the module from the store. *@found is false if the store does not have it, or if its code
 * cannot be loaded; then *@damaged becomes true. */
static int stored_load(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_kernels_module *m, bool *found, bool *damaged)
{
	struct fdry_buf code = { 0 };
	CUresult res;
	int err = 0;

	fdry_kernels_store_get(k, u, &code, found, damaged);
	if (!*found)
		goto out_release;
	err = module_load(k, u, (struct fdry_span){ code.data, code.len }, &m->module, &res);
	m->bytes = code.len;
	if (err && is_useless(res)) {
		*found = false;
		*damaged = true;
		err = 0;
		goto out_release;
	}
	fdry_count(FDRY_METRIC_KERNEL_STORED, 1);
	fdry_kernels_add(k, store_hits, 1);
out_release:
	fdry_buf_release(&code);
	return err;
}

static int compile_load(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			struct fdry_kernels_module *m)
{
	struct fdry_buf code = { 0 };
	struct fdry_span bytes;
	CUresult res;
	int err = fdry_kernels_compile(k, u, &code);

	if (err)
		goto out_release;
	bytes = (struct fdry_span){ code.data, code.len };
	err = module_load(k, u, bytes, &m->module, &res);
	m->bytes = code.len;
	if (err)
		goto out_release;
	fdry_kernels_store_put(k, u, bytes); /* only after the code was loaded */
out_release:
	fdry_buf_release(&code);
	return err;
}

/* One process of the host compiles; the others find the code in the store. */
static int compiled_load(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
			 struct fdry_kernels_module *m)
{
	struct fdry_claim *claim;
	bool found, damaged = false;
	int err = stored_load(k, u, m, &found, &damaged);

	if (err || found)
		return err;
	claim = fdry_kernels_store_claim(k, u);
	/* Another process may have compiled it in the meantime, even if this one did not have to
	 * wait. */
	if (claim)
		err = stored_load(k, u, m, &found, &damaged);
	fdry_kernels_add(k, store_damaged, damaged); /* count it once, however often the store was
							read */
	if (err || found)
		goto out_claim;
	if (k->store && u->keep)
		fdry_kernels_add(k, store_misses, 1);
	err = compile_load(k, u, m);
out_claim:
	fdry_claim_end(claim);
	return err;
}

static int module_fill(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_kernels_module *m)
{
	CUstreamCaptureMode mode;
	CUresult res;
	int err = fdry_driver_enter(k->drv, k->ctx, &mode);

	if (err)
		return err;
	if (u->compiled) {
		err = compiled_load(k, u, m);
	} else {
		err = module_load(k, u, u->code.bytes, &m->module, &res);
		m->bytes = u->code.bytes.len;
	}
	fdry_driver_leave(k->drv, &mode);
	return err;
}

/* --- requests --- */

/* Add a module, which this caller then loads. With the lock. */
static struct fdry_kernels_module *module_begin(struct fdry_kernels *k, const struct fdry_oid *key)
{
	struct fdry_kernels_module *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->key = *key;
	m->users = 1;
	m->next = *bucket_of(k, key);
	*bucket_of(k, key) = m;
	return m;
}

/* With the lock. */
static void module_end(struct fdry_kernels *k, struct fdry_kernels_module *m, int err)
{
	m->state = err ? FDRY_MODULE_FAILED : FDRY_MODULE_READY;
	if (err) {
		fdry_saved_err_set(&m->saved_err, err);
		module_remove(k, m);
	} else {
		fdry_gauge(FDRY_METRIC_KERNEL_MODULES, 1);
		k->count++;
		k->bytes += m->bytes;
	}
	pthread_cond_broadcast(&k->changed);
}

static void request_count(struct fdry_kernels *k, const struct fdry_kernels_unit *u, bool hit)
{
	fdry_count(hit ? FDRY_METRIC_KERNEL_HITS : FDRY_METRIC_KERNEL_MISSES, 1);
	k->stats.hits += hit;
	k->stats.misses += !hit;
	k->stats.source_hits += u->source && hit;
	k->stats.source_misses += u->source && !hit;
}

/* Find or load the unit's module, and add a user to it. The caller is busy. If another thread loads
 * the module and fails, this returns its error. */
static int module_need(struct fdry_kernels *k, const struct fdry_kernels_unit *u,
		       struct fdry_kernels_module **ret)
{
	struct fdry_kernels_module *m = module_find(k, &u->key);
	int err = 0;

	request_count(k, u, m != NULL);
	if (m) {
		m->users++;
		while (m->state == FDRY_MODULE_LOADING)
			pthread_cond_wait(&k->changed, &k->lock);
		err = fdry_saved_err_restore(&m->saved_err);
	} else {
		m = module_begin(k, &u->key);
		if (!m)
			return fdry_nomem();
		pthread_mutex_unlock(&k->lock);
		err = module_fill(k, u, m);
		pthread_mutex_lock(&k->lock);
		module_end(k, m, err);
	}
	if (err) {
		module_leave(m);
		return err;
	}
	*ret = m;
	return 0;
}

/* --- functions --- */

/* Find or make a function. The lock is held, and released while the driver searches. */
static int func_need(struct fdry_kernels *k, struct fdry_kernels_module *m, const char *entry,
		     CUfunction *ret)
{
	struct fdry_kernels_func *f = func_find(m, entry), *made = NULL;
	int err;

	if (f) {
		*ret = f->func;
		return 0;
	}
	pthread_mutex_unlock(&k->lock);
	err = fdry_kernels_func_new(k, m, entry, &made);
	pthread_mutex_lock(&k->lock);
	if (err)
		return err;
	f = func_find(m, entry);
	if (f) {
		fdry_kernels_func_free(made); /* another thread has made it in the meantime */
	} else {
		f = made;
		f->next = m->funcs;
		m->funcs = f;
		f->by_func = *bucket_of_func(k, f->func);
		*bucket_of_func(k, f->func) = f;
	}
	*ret = f->func;
	return 0;
}

static int entry_check(const char *entry, const CUfunction *ret)
{
	if (entry && !ret)
		return fdry_fail(FDRY_E_INVAL, "the pointer for the function is NULL; pass one");
	return 0;
}

static int unit_get(struct fdry_kernels *k, const struct fdry_kernels_unit *u, const char *entry,
		    CUfunction *ret)
{
	struct fdry_kernels_module *m = NULL;
	CUfunction func = NULL;
	int err;

	pthread_mutex_lock(&k->lock);
	busy_enter(k);
	err = module_need(k, u, &m);
	if (err)
		goto out_leave;
	if (entry)
		err = func_need(k, m, entry, &func);
	if (err)
		fdry_fail_at(err, "%s", u->title);
	module_leave(m);
out_leave:
	k->stats.failures += err != 0;
	busy_leave(k);
	pthread_mutex_unlock(&k->lock);
	if (err)
		return err;
	if (ret)
		*ret = func;
	return 0;
}

int fdry_kernels_function(struct fdry_kernels *k, const struct fdry_kernels_source *source,
			  const char *entry, CUfunction *ret)
{
	struct fdry_kernels_unit u;
	int err = fdry_kernels_check(k);

	if (err)
		return err;
	err = entry_check(entry, ret);
	if (err)
		return err;
	err = fdry_kernels_unit_init(k, source, &u);
	if (err) {
		fdry_kernels_add(k, failures, 1);
		return err;
	}
	err = unit_get(k, &u, entry, ret);
	fdry_kernels_unit_release(&u);
	return err;
}

int fdry_kernels_key(struct fdry_kernels *k, const struct fdry_kernels_source *source,
		     struct fdry_kernels_key *ret)
{
	struct fdry_kernels_unit u;
	int err = fdry_kernels_check(k) ?: fdry_need(ret);

	if (err)
		return err;
	err = fdry_kernels_unit_init(k, source, &u);
	if (err)
		return err;
	memcpy(ret->bytes, u.key.b, sizeof(ret->bytes));
	fdry_kernels_unit_release(&u);
	return 0;
}

/* With the lock, busy. */
static int loaded_find(struct fdry_kernels *k, const struct fdry_oid *key, const char *entry,
		       CUfunction *ret)
{
	struct fdry_kernels_module *m = module_find(k, key);
	int err;

	if (!m || m->state != FDRY_MODULE_READY)
		return fdry_fail(FDRY_E_NOKEY,
				 "no code with that key is loaded; request it by its source");
	fdry_count(FDRY_METRIC_KERNEL_HITS, 1);
	k->stats.hits++;
	if (!entry)
		return 0;
	m->users++;
	err = func_need(k, m, entry, ret);
	module_leave(m);
	return err;
}

int fdry_kernels_find(struct fdry_kernels *k, const struct fdry_kernels_key *key, const char *entry,
		      CUfunction *ret)
{
	CUfunction func = NULL;
	struct fdry_oid oid;
	int err = fdry_kernels_check(k) ?: fdry_need(key);

	if (err)
		return err;
	err = entry_check(entry, ret);
	if (err)
		return err;
	memcpy(oid.b, key->bytes, sizeof(oid.b));
	pthread_mutex_lock(&k->lock);
	busy_enter(k);
	err = loaded_find(k, &oid, entry, &func);
	busy_leave(k);
	pthread_mutex_unlock(&k->lock);
	if (err)
		return err;
	if (ret)
		*ret = func;
	return 0;
}

/* --- unloading --- */

/* Unload a module, which leaves the table even if the driver fails. Returns @err if it is set, else
 * the driver's error. */
static int module_unload(struct fdry_kernels *k, struct fdry_kernels_module *m, int err)
{
	struct fdry_kernels_func *f;
	int unload = fdry_call(k->drv, cuModuleUnload, m->module);

	while ((f = m->funcs)) {
		m->funcs = f->next;
		fdry_kernels_func_free(f);
	}
	free(m);
	return err ? err : unload;
}

static int modules_unload(struct fdry_kernels *k)
{
	struct fdry_kernels_module *m;
	unsigned int i;
	int err = 0;

	for (i = 0; i < FDRY_KERNELS_BUCKETS; i++)
		while ((m = k->modules[i])) {
			k->modules[i] = m->next;
			err = module_unload(k, m, err);
		}
	memset(k->funcs, 0, sizeof(k->funcs));
	fdry_gauge(FDRY_METRIC_KERNEL_MODULES, -(int64_t)k->count);
	k->count = 0;
	k->bytes = 0;
	return err;
}

int fdry_kernels_unload(struct fdry_kernels *k)
{
	CUstreamCaptureMode mode;
	int err;

	pthread_mutex_lock(&k->lock);
	while (k->clearing)
		pthread_cond_wait(&k->changed, &k->lock);
	k->clearing = true;
	while (k->busy)
		pthread_cond_wait(&k->changed, &k->lock);
	err = fdry_driver_enter(k->drv, k->ctx, &mode);
	if (err)
		goto out_clear;
	err = modules_unload(k);
	fdry_driver_leave(k->drv, &mode);
out_clear:
	k->clearing = false;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
	return err;
}
