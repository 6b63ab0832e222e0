// SPDX-License-Identifier: Apache-2.0
/*
 * module_table.c - finds and loads shared modules; see module_table.h.
 *
 * Two tables under one lock: modules by object, functions by module and name. A function enters its
 * table, with its attributes, before the driver loads it. So the choice among several loads of one
 * object needs no driver call, and the table's lock is never held across one. The driver is called
 * under the module's own lock: a second thread that needs the module waits there, and tries again
 * itself if the first one failed.
 */
#include "graph/module_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "graph/module.h"
#include "lib/fork_lock.h"
#include "lib/log.h"

#define BUCKETS 4096u /* a power of two */

struct function {
	struct function *next;      /* in its bucket */
	struct function *of_module; /* the next one of its module */
	const struct fdry_module *module;
	char *name;
	int32_t attrs[FDRY_FUNC_ATTR_COUNT];
	CUfunction handle; /* NULL until its attributes are set and the fields below hold its
			      parameters */
	uint32_t nparams;
	struct fdry_param *params;
};

struct fdry_module {
	struct fdry_module *next;  /* in its bucket */
	const struct fdry_driver *drv;
	unsigned long long ctx_id;
	unsigned int process; /* of fork_lock.h: a child uses no module of its parent's */
	const struct fdry_module_user *owner; /* NULL: shared */
	struct fdry_oid object;
	struct function *functions;
	uint32_t users;            /* the table's lock protects it and all fields above */
	pthread_mutex_t lock;      /* protects the handles, here and in functions, and the
				      parameters */
	CUmodule handle;           /* NULL: not loaded yet */
};

static struct {
	struct fdry_module *modules[BUCKETS];
	struct function *functions[BUCKETS];
} table;

/* --- the tables; with the lock --- */

static struct fdry_module **module_bucket(const struct fdry_oid *object)
{
	return &table.modules[fdry_get32(object->b) % BUCKETS];
}

static struct function **function_bucket(const struct fdry_module *m, const char *name)
{
	uint64_t hash = (uintptr_t)m >> 4;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 0x100000001b3ull;
	return &table.functions[(hash ^ hash >> 32) % BUCKETS];
}

static struct function *function_find(const struct fdry_module *m, const char *name)
{
	struct function *f;

	for (f = *function_bucket(m, name); f && (f->module != m || strcmp(f->name, name));
	     f = f->next)
		;
	return f;
}

static void function_free(struct function *f)
{
	free(f->name);
	free(f->params);
	free(f);
}

static struct function *function_add(struct fdry_module *m, const struct fdry_kernel *k)
{
	struct function *f = calloc(1, sizeof(*f)), **bucket = function_bucket(m, k->name);

	if (!f)
		return NULL;
	f->name = strdup(k->name);
	if (!f->name) {
		free(f);
		return NULL;
	}
	memcpy(f->attrs, k->attrs, sizeof(f->attrs));
	f->module = m;
	f->next = *bucket;
	*bucket = f;
	f->of_module = m->functions;
	m->functions = f;
	return f;
}

static bool module_matches(const struct fdry_module *m, const struct fdry_module_user *u,
			   const struct fdry_kernel *k)
{
	return fdry_oid_eq(&m->object, &k->object) && m->drv == u->drv && m->ctx_id == u->ctx_id &&
	       m->process == fdry_fork_count() &&
	       (m->owner == u || (!m->owner && !k->has_values));
}

/* Find a load of the kernel's object whose function has the kernel's attributes, or was not
 * requested yet. NULL: there is none. */
static struct fdry_module *module_find(const struct fdry_module_user *u,
				       const struct fdry_kernel *k)
{
	struct fdry_module *m;
	struct function *f;

	for (m = *module_bucket(&k->object); m; m = m->next) {
		if (!module_matches(m, u, k))
			continue;
		f = function_find(m, k->name);
		if (!f || !memcmp(f->attrs, k->attrs, sizeof(f->attrs)))
			return m;
	}
	return NULL;
}

/* The new module goes to the end of its bucket, so module_find() finds the oldest load first. */
static struct fdry_module *module_add(const struct fdry_module_user *u, const struct fdry_kernel *k,
				      bool shared)
{
	struct fdry_module *m = calloc(1, sizeof(*m)), **at = module_bucket(&k->object);

	if (!m)
		return NULL;
	*m = (struct fdry_module){ .drv = u->drv,
				   .ctx_id = u->ctx_id,
				   .process = fdry_fork_count(),
				   .owner = shared ? NULL : u,
				   .object = k->object };
	pthread_mutex_init(&m->lock, NULL);
	while (*at)
		at = &(*at)->next;
	*at = m;
	return m;
}

static void module_remove(struct fdry_module *m)
{
	struct fdry_module **at = module_bucket(&m->object);
	struct function *f, **p;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	for (f = m->functions; f; f = f->of_module) {
		for (p = function_bucket(m, f->name); *p != f; p = &(*p)->next)
			;
		*p = f->next;
	}
}

/* --- the driver; with the module's lock --- */

static int attr_set(const struct fdry_driver *drv, CUfunction func, CUfunction_attribute attr,
		    int32_t value)
{
	int now, err;

	err = fdry_call(drv, cuFuncGetAttribute, &now, attr, func);
	if (err || now == value)
		return err;
	return fdry_call(drv, cuFuncSetAttribute, func, attr, value);
}

static int attrs_set(const struct fdry_driver *drv, CUfunction func, const struct fdry_kernel *k)
{
	static const CUfunction_attribute attrs[] = {
#define X(id, attr, name, fresh) [id] = attr,
		FDRY_FUNC_ATTRS(X)
#undef X
	};
	size_t i;
	int err;

	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		err = attr_set(drv, func, attrs[i], k->attrs[i]);
		if (err)
			return err;
	}
	return 0;
}

static int params_differ(uint32_t i)
{
	return fdry_fail(FDRY_E_BADIMAGE,
			 "its object has other parameters than the image says, from number %u on; "
			 "seal the image anew",
			 i);
}

/* The kernel's table of parameters is the layout of the arguments in graph objects. Check that the
 * driver has the same. */
static int params_check(const struct fdry_driver *drv, CUfunction func, const struct fdry_kernel *k)
{
	size_t offset, size;
	uint32_t i;
	CUresult res;

	for (i = 0; i <= k->nparams; i++) {
		res = fdry_call_raw(drv, cuFuncGetParamInfo, func, i, &offset, &size);
		if (i == k->nparams && res == CUDA_ERROR_INVALID_VALUE)
			return 0;
		if (res && res != CUDA_ERROR_INVALID_VALUE)
			return fdry_driver_result(drv, FDRY_DRV_cuFuncGetParamInfo, res);
		if (res || i == k->nparams || offset != k->params[i].offset ||
		    size != k->params[i].size)
			break;
	}
	return params_differ(i);
}

/* Compare with the parameters of a function that another image loaded, which are the driver's. */
static int params_compare(const struct function *f, const struct fdry_kernel *k)
{
	uint32_t i, n = f->nparams < k->nparams ? f->nparams : k->nparams;

	for (i = 0; i < n && !memcmp(&f->params[i], &k->params[i], sizeof(*f->params)); i++)
		;
	return i < n || f->nparams != k->nparams ? params_differ(i) : 0;
}

static int function_load(const struct fdry_module *m, const struct fdry_kernel *k,
			 struct function *f)
{
	struct fdry_param *params;
	CUfunction func;
	CUresult res = fdry_call_raw(m->drv, cuModuleGetFunction, &func, m->handle, k->name);
	int err;

	if (res == CUDA_ERROR_NOT_FOUND)
		return fdry_fail(FDRY_E_BADIMAGE,
				 "its object has no kernel of that name; seal the image anew");
	err = fdry_driver_result(m->drv, FDRY_DRV_cuModuleGetFunction, res);
	if (err)
		return err;
	err = attrs_set(m->drv, func, k);
	if (err)
		return err;
	err = params_check(m->drv, func, k);
	if (err)
		return err;
	params = malloc((k->nparams + 1ul) * sizeof(*params));
	if (!params)
		return fdry_nomem();
	if (k->nparams)
		memcpy(params, k->params, k->nparams * sizeof(*params));
	f->params = params;
	f->nparams = k->nparams;
	f->handle = func;
	return 0;
}

static int module_load(struct fdry_module *m, const struct fdry_module_user *u,
		       const struct fdry_kernel *k)
{
	struct fdry_span bytes;
	CUresult res;
	int err = u->get(u->arg, &k->object, &bytes);

	return err ? err : fdry_module_load(m->drv, bytes, &m->handle, &res);
}

static int module_fill(struct fdry_module *m, const struct fdry_module_user *u,
		       const struct fdry_kernel *k, struct function *f, CUfunction *ret)
{
	int err = 0;

	pthread_mutex_lock(&m->lock);
	if (!m->handle)
		err = module_load(m, u, k);
	if (err)
		goto out_unlock;
	err = f->handle ? params_compare(f, k) : function_load(m, k, f);
	if (err)
		goto out_unlock;
	*ret = f->handle;
out_unlock:
	pthread_mutex_unlock(&m->lock);
	return err;
}

/* --- references --- */

/* Add a user to @m, which may be NULL, and find or enter the kernel's function in it. Needs the
 * table's lock. */
static int module_use(struct fdry_module *m, const struct fdry_kernel *k, struct function **ret)
{
	struct function *f;

	if (!m)
		return fdry_nomem();
	m->users++;
	f = function_find(m, k->name);
	if (!f)
		f = function_add(m, k);
	*ret = f;
	return f ? 0 : fdry_nomem();
}

/* Find the kernel's module, or enter one that is still to be loaded. On error, @ret is NULL or a
 * reference that the caller must return. */
static int module_enter(const struct fdry_module_user *u, const struct fdry_kernel *k,
			struct fdry_module **ret, struct function **func)
{
	struct fdry_module *m;
	struct fdry_span bytes;
	bool shared;
	int err;

	fdry_fork_lock(FDRY_LOCK_MODULES);
	m = module_find(u, k);
	if (m) {
		err = module_use(m, k, func);
		goto out_unlock;
	}
	fdry_fork_unlock(FDRY_LOCK_MODULES);
	err = u->get(u->arg, &k->object, &bytes);
	if (err)
		return err;
	shared = !k->has_values && !fdry_module_has_variables(bytes);
	if (!shared)
		fdry_debug("kernel %.200s has variables, and a load of its code for each image",
			   k->name);
	fdry_fork_lock(FDRY_LOCK_MODULES);
	m = module_find(u, k); /* another thread may have entered it in the meantime */
	if (!m)
		m = module_add(u, k, shared);
	err = module_use(m, k, func);
out_unlock:
	*ret = m;
	fdry_fork_unlock(FDRY_LOCK_MODULES);
	return err;
}

int fdry_module_get(const struct fdry_module_user *u, const struct fdry_kernel *k,
		    struct fdry_module **ret, CUfunction *func)
{
	struct fdry_module *m = NULL;
	struct function *f;
	CUfunction handle;
	int err;

	err = module_enter(u, k, &m, &f);
	if (err)
		goto out_put;
	err = module_fill(m, u, k, f, &handle);
	if (err)
		goto out_put;
	*ret = m;
	*func = handle;
	return 0;
out_put:
	fdry_module_put(m);
	return err;
}

const struct fdry_oid *fdry_module_object(const struct fdry_module *m)
{
	return &m->object;
}

CUmodule fdry_module_handle(const struct fdry_module *m)
{
	return m->handle;
}

bool fdry_module_is_own(const struct fdry_module *m)
{
	return m->owner != NULL;
}

void fdry_module_put(struct fdry_module *m)
{
	struct function *f;
	bool last;

	if (!m)
		return;
	fdry_fork_lock(FDRY_LOCK_MODULES);
	last = !--m->users;
	if (last)
		module_remove(m);
	fdry_fork_unlock(FDRY_LOCK_MODULES);
	if (!last)
		return;
	if (m->handle)
		(void)fdry_call_raw(m->drv, cuModuleUnload, m->handle);
	while ((f = m->functions)) {
		m->functions = f->of_module;
		function_free(f);
	}
	pthread_mutex_destroy(&m->lock);
	free(m);
}

bool fdry_module_is_shared(const struct fdry_oid *object)
{
	struct fdry_module *m;

	fdry_fork_lock(FDRY_LOCK_MODULES);
	for (m = *module_bucket(object);
	     m && (m->owner || m->process != fdry_fork_count() || !fdry_oid_eq(&m->object, object));
	     m = m->next)
		;
	fdry_fork_unlock(FDRY_LOCK_MODULES);
	return m;
}
