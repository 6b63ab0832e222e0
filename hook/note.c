// SPDX-License-Identifier: Apache-2.0
/*
 * note.c - records the code from which every module and library handle was loaded.
 *
 * A note stays when its handle is unloaded, since graphs may hold its kernels. When the driver
 * returns the same handle again, the new note replaces the old one. Then the old note's copy of the
 * code is freed, unless a caller has its address. If code could not be kept, its load is noted as
 * unknown, so that no old note is found for it.
 *
 * Locking: one lock around both tables; code is kept before a thread takes it.
 */
#include "hook/internal.h"

#include <stdlib.h>

#include "lib/log.h"

struct note {
	struct note *next; /* of the retired notes */
	void *handle;
	struct fdry_code code;
	void *alloc; /* a copy of the code, if one was needed, */
	size_t mapped; /* or 0; as in struct fdry_kept */
	void *jit;  /* the options' arrays */
	bool shown; /* callers hold pointers into it */
};

/* Handle -> note: open addressing, at most half full, a power of two of slots. */
struct table {
	struct note **slots;
	size_t cap;
	size_t n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table libraries, modules;
static struct note *retired; /* notes that were replaced, but whose address callers have; never
				freed */

static struct note **slot_of(const struct table *t, const void *handle)
{
	size_t i = ((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15ull >> 20;

	for (i &= t->cap - 1; t->slots[i] && t->slots[i]->handle != handle;
	     i = (i + 1) & (t->cap - 1))
		;
	return &t->slots[i];
}

static bool table_grow(struct table *t)
{
	struct table wider = { .cap = t->cap ? 2 * t->cap : 256, .n = t->n };
	size_t i;

	wider.slots = calloc(wider.cap, sizeof(*wider.slots));
	if (!wider.slots)
		return false;
	for (i = 0; i < t->cap; i++)
		if (t->slots[i])
			*slot_of(&wider, t->slots[i]->handle) = t->slots[i];
	free(t->slots);
	*t = wider;
	return true;
}

static void note_free(struct note *n)
{
	if (!n)
		return;
	fdry_code_drop(n->alloc, n->mapped);
	free(n->jit);
	free(n);
}

static struct note *table_get(const struct table *t, const void *handle)
{
	return handle && t->cap ? *slot_of(t, handle) : NULL;
}

/* Insert @n. Returns a note to free: the one that it replaces, or @n itself if memory is out. */
static struct note *table_put(struct table *t, struct note *n)
{
	struct note **slot, *old;

	if (2 * (t->n + 1) > t->cap && !table_grow(t) && !t->cap)
		return n;
	slot = slot_of(t, n->handle);
	old = *slot;
	if (!old && t->n + 1 == t->cap)
		return n;
	*slot = n;
	t->n += !old;
	if (!old || !old->shown)
		return old;
	old->next = retired;
	retired = old;
	return NULL;
}

/* The table owns @n from now on. */
static void note_enter(struct table *t, struct note *n)
{
	struct note *old;

	pthread_mutex_lock(&lock);
	old = table_put(t, n);
	pthread_mutex_unlock(&lock);
	note_free(old);
}

enum jit_use { JIT_KEEP, JIT_OUTPUT, JIT_SYMBOLS };

static enum jit_use jit_use(CUjit_option option)
{
	switch (option) {
	case CU_JIT_WALL_TIME:
	case CU_JIT_INFO_LOG_BUFFER:
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_ERROR_LOG_BUFFER:
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		return JIT_OUTPUT;
	case CU_JIT_GLOBAL_SYMBOL_NAMES:
	case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
	case CU_JIT_GLOBAL_SYMBOL_COUNT:
	case CU_JIT_REFERENCED_KERNEL_NAMES:
	case CU_JIT_REFERENCED_KERNEL_COUNT:
	case CU_JIT_REFERENCED_VARIABLE_NAMES:
	case CU_JIT_REFERENCED_VARIABLE_COUNT:
		return JIT_SYMBOLS;
	default:
		return JIT_KEEP;
	}
}

static int jit_copy(struct note *n, const struct fdry_load *load)
{
	struct fdry_code *code = &n->code;
	CUjit_option *options;
	enum jit_use use;
	unsigned int i;
	void **values;

	if (!load->n)
		return 0;
	values = n->jit = calloc(load->n, sizeof(*values) + sizeof(*options));
	if (!values)
		return fdry_nomem();
	options = (CUjit_option *)(values + load->n);
	for (i = 0; i < load->n; i++) {
		use = jit_use(load->options[i]);
		code->jit_symbols |= use == JIT_SYMBOLS;
		if (use != JIT_KEEP)
			continue;
		options[code->njit] = load->options[i];
		values[code->njit++] = load->values[i];
	}
	code->jit = options;
	code->jit_values = values;
	return 0;
}

static struct note *note_new(const struct fdry_load *load)
{
	struct note *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->handle = load->library ? (void *)load->library : (void *)load->module;
	n->code.library = load->library;
	n->code.module = load->module;
	return n;
}

/* Remove the note of a handle that the driver returned again. @n may be NULL; lock held. */
static void forget(struct note *n)
{
	if (!n)
		return;
	n->code.kind = FDRY_CODE_UNKNOWN;
	n->code.data = NULL;
	n->code.len = 0;
}

/* Without memory for the new note, at least the old one must be removed. */
static void forget_load(const struct fdry_load *load)
{
	pthread_mutex_lock(&lock);
	forget(load->library ? table_get(&libraries, load->library)
			     : table_get(&modules, load->module));
	pthread_mutex_unlock(&lock);
}

/* The note owns @kept from now on. */
static void note_put(const struct fdry_load *load, const struct fdry_kept *kept)
{
	struct note *n = note_new(load);

	if (!n) {
		fdry_code_drop(kept->alloc, kept->mapped);
		forget_load(load);
		return;
	}
	n->alloc = kept->alloc;
	n->mapped = kept->mapped;
	if (!jit_copy(n, load)) {
		n->code.kind = kept->kind;
		n->code.data = kept->kind == FDRY_CODE_UNKNOWN ? NULL : kept->data;
		n->code.len = kept->kind == FDRY_CODE_UNKNOWN ? 0 : kept->len;
	}
	fdry_debug("interposer: %s %p: code of kind %d, %zu bytes%s",
		   load->library ? "library" : "module", n->handle, n->code.kind, n->code.len,
		   n->alloc ? ", copied" : "");
	note_enter(load->library ? &libraries : &modules, n);
}

void fdry_note(const struct fdry_load *load)
{
	struct fdry_kept kept = { 0 };

	if (fdry_start_is_forked())
		return;
	if (load->image && !(load->copy && fdry_copy_take(load->copy, &kept)) &&
	    fdry_code_keep(load->image, &kept))
		fdry_warn("interposer: %s", fdry_last_error());
	note_put(load, &kept);
}

void fdry_note_adopt(const struct fdry_load *load, void *alloc, size_t len)
{
	struct fdry_kept kept;

	fdry_code_adopt(alloc, len, &kept);
	note_put(load, &kept);
}

/* True if an equal note exists, so that pointers of callers stay valid. */
static bool is_alias(const struct note *known, const struct note *of)
{
	return known && known->code.library == of->code.library &&
	       known->code.data == of->code.data && known->code.jit == of->code.jit;
}

void fdry_note_alias(CUlibrary library, CUmodule module)
{
	struct note *n, *of, *known;

	if (fdry_start_is_forked())
		return;
	n = calloc(1, sizeof(*n));
	pthread_mutex_lock(&lock);
	of = table_get(&libraries, library);
	known = table_get(&modules, module);
	if (!of || (!n && !is_alias(known, of)))
		forget(known); /* the note of an older load with the same handle */
	if (!of || !n || is_alias(known, of)) {
		free(n);
		n = NULL;
	} else {
		of->shown = true;
		n->handle = module;
		n->code = of->code;
	}
	pthread_mutex_unlock(&lock);
	if (n)
		note_enter(&modules, n);
}

int fdry_note_find(CUlibrary library, CUmodule module, struct fdry_code *ret)
{
	int err = fdry_start_forked();
	struct note *n;

	if (err)
		return err;
	pthread_mutex_lock(&lock);
	n = table_get(&libraries, library);
	if (!n)
		n = table_get(&modules, module);
	if (n) {
		n->shown = true;
		*ret = n->code;
	}
	pthread_mutex_unlock(&lock);
	if (!n)
		return fdry_fail(
			FDRY_E_NOENT,
			"library %p, module %p: its loading was not seen; put the interposer in "
			"place before any CUDA code is loaded",
			(void *)library, (void *)module);
	return 0;
}
