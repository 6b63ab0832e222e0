// SPDX-License-Identifier: Apache-2.0
/* fingerprint_kernel.c - see fingerprint_kernel.h. */
#include "image/fingerprint_kernel.h"

#include "graph/ptx.h"
#include "image/compiled.h"
#include "image/identity.h"
#include "lib/log.h"

/* The facts that determine the compiled code. The struct points into itself. */
struct key {
	struct fdry_identity device;
	char compiler[128];
	struct fdry_fact facts[FDRY_COMPILED_FACTS];
	struct fdry_compiled compiled;
};

static const char *arch_of(const struct fdry_identity *device)
{
	size_t i;

	for (i = 0; i < FDRY_IDENTITY_FACTS; i++)
		if (!strcmp(device->fact[i].key, "fdry.gpu.arch"))
			return device->fact[i].value;
	return "";
}

/* A key as PTX has it in a cache of kernels (run/kernel_key.c). */
static int key_make(const struct fdry_driver *drv, CUdevice device, struct fdry_span ptx,
		    struct key *ret)
{
	struct fdry_compiled *c = &ret->compiled;
	struct fdry_compiled_source src = { .software = drv->software,
					    .compiler = ret->compiler,
					    .content = c->content,
					    .form = "ptx",
					    .options = "",
					    .version = "" };
	struct fdry_oid content;
	int err = fdry_identity_of(drv, device, &ret->device);

	if (err)
		return err;
	err = fdry_oid_of(ptx.data, ptx.len, &content);
	if (err)
		return err;
	fdry_oid_hex(&content, c->content);
	fdry_compiled_compiler(drv, ret->compiler);
	src.arch = src.target = arch_of(&ret->device);
	fdry_compiled_facts(&src, ret->facts);
	c->facts = ret->facts;
	c->nfacts = FDRY_COMPILED_FACTS;
	return fdry_compiled_key(ret->facts, c->nfacts, &c->key);
}

/* Load stored code; false if there is none, or it cannot be loaded. */
static bool stored_load(const struct fdry_driver *drv, CUdevice device, struct fdry_store *store,
			struct fdry_span ptx, struct fdry_fingerprinter **ret)
{
	struct fdry_buf cubin = { 0 };
	bool found = false;
	struct key k;
	int err = key_make(drv, device, ptx, &k) ?:
		  fdry_compiled_get(store, &k.compiled, &cubin, &found);

	if (!err && found)
		err = fdry_fingerprinter_load(drv, (struct fdry_span){ cubin.data, cubin.len },
					      ret);
	fdry_buf_release(&cubin);
	if (err)
		fdry_info("the stored fingerprint kernel cannot be loaded and is compiled anew: %s",
			  fdry_last_error());
	return found && !err;
}

int fdry_fingerprint_kernel_load(const struct fdry_driver *drv, CUdevice device,
				 struct fdry_store *store, struct fdry_buf *compiled,
				 struct fdry_fingerprinter **ret)
{
	struct fdry_span code;
	bool ptx;
	int err = fdry_fingerprint_code_of(drv, device, &code, &ptx);

	if (err)
		return err;
	if (!ptx)
		return fdry_fingerprinter_load(drv, code, ret);
	if (store && stored_load(drv, device, store, code, ret))
		return 0;
	err = fdry_ptx_compile(drv, code, "fingerprint", compiled);
	if (err)
		return err;
	return fdry_fingerprinter_load(drv, (struct fdry_span){ compiled->data, compiled->len },
				       ret);
}

void fdry_fingerprint_kernel_keep(const struct fdry_driver *drv, CUdevice device,
				  struct fdry_store *store, struct fdry_span compiled)
{
	struct fdry_span code;
	struct key k;
	bool ptx;
	int err = fdry_fingerprint_code_of(drv, device, &code, &ptx) ?:
		  key_make(drv, device, code, &k) ?:
		  fdry_compiled_put(store, &k.compiled, compiled);

	if (err && err != -FDRY_E_RACED)
		fdry_info("the fingerprint kernel is not kept in the store: %s",
			  fdry_last_error());
}
