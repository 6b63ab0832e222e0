// SPDX-License-Identifier: Apache-2.0
/*
 * start.c - load an image, or report why that failed, capture and seal; see
 * fdry_load_or_capture().
 *
 * The interposer is installed first: a load brings the driver into the process, and after that
 * it is too late. A failure to install it matters only if no image can be loaded. It is reported
 * then, before the caller's function runs.
 *
 * One of several processes that start alike captures; the others wait for it and load the image
 * that it sealed. Alike means the same ref and the same facts. So processes that need each other
 * to capture, such as the ranks of one model, must differ in one of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/capture/capture.h"
#include "image/image.h"
#include "image/tensor.h"
#include "lib/clock.h"
#include "lib/config.h"
#include "lib/log.h"
#include "lib/opts.h"
#include "lib/threads.h"

#define WAIT_MS 600000u

struct start {
	struct fdry_store *store;
	struct fdry_start_opts o;
	struct fdry_load_opts load;
	struct fdry_capture_opts capture;
	const char *ref;
	struct fdry_saved_err interposer; /* why nothing can be captured */
	struct fdry_buf unused;      /* of struct fdry_start_unused; strings are malloc'ed */
	struct fdry_start_report *ret;
};

#define unused_array(s) ((struct fdry_start_unused *)(s)->unused.data)
#define unused_count(s) ((s)->unused.len / sizeof(struct fdry_start_unused))

/* --- images that were not used --- */

static void unused_release(struct fdry_start_unused *u)
{
	free((char *)u->name);
	free((char *)u->id);
	free((char *)u->field);
	free((char *)u->wanted);
	free((char *)u->found);
	free((char *)u->why);
}

static void unused_clear(struct start *s)
{
	size_t i;

	for (i = 0; i < unused_count(s); i++)
		unused_release(&unused_array(s)[i]);
	s->unused.len = 0;
}

/* The thread's last error is the reason. */
static int unused_add(struct start *s, const char *name, int code, const struct fdry_mismatch *mm)
{
	char hex[FDRY_OID_HEX_SIZE] = "";
	struct fdry_saved_err why;
	struct fdry_oid id;
	struct fdry_start_unused u;
	int err;

	fdry_saved_err_set(&why, code);
	if (!fdry_store_resolve(s->store, name, &id))
		fdry_oid_hex(&id, hex);
	u = (struct fdry_start_unused){ strdup(name),
					strdup(hex),
					strdup(mm->field),
					strdup(mm->wanted),
					strdup(mm->found),
					strdup(why.why),
					code };
	err = u.name && u.id && u.field && u.wanted && u.found && u.why
		      ? fdry_buf_put(&s->unused, &u, sizeof(u))
		      : fdry_nomem();
	if (err) {
		unused_release(&u);
		return err;
	}
	return fdry_saved_err_restore(&why);
}

/* --- loading --- */

/* Would a capture avoid the failure? One of an image or of its store, yes. A mistake of the caller
 * or a fault of the driver would fail the capture, too. */
static bool capture_helps(int err)
{
	static const enum fdry_errcode codes[] = {
		FDRY_E_NOENT,  FDRY_E_IDENTITY, FDRY_E_BADIMAGE, FDRY_E_VERSION,
		FDRY_E_LIMIT,  FDRY_E_BADCODE,	FDRY_E_CORRUPT,	 FDRY_E_STORE,
		FDRY_E_LOCKED, FDRY_E_IO,	FDRY_E_NODEVMEM, FDRY_E_TAKEN,
	};
	size_t i;

	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (err == -(int)codes[i])
			return true;
	return false;
}

static int loaded(struct start *s, const char *name)
{
	fdry_image_id(s->ret->image, s->ret->id);
	s->ret->name = strdup(name);
	return s->ret->name ? 0 : fdry_nomem();
}

static int load_one(struct start *s, const char *name)
{
	struct fdry_mismatch mm = { .field = "" };
	int err;

	err = fdry_image_load_reporting(s->store, name, &s->load, &mm, &s->ret->image);
	return err ? unused_add(s, name, err, &mm) : loaded(s, name);
}

/* The first code that is not FDRY_E_NOENT, if there is one, and all reasons. */
static int none_fail(struct start *s)
{
	const struct fdry_start_unused *u = unused_array(s);
	struct fdry_buf text = { 0 };
	size_t i, n = unused_count(s);
	int err = 0, code = u[0].code;

	if (n == 1)
		return fdry_fail((enum fdry_errcode)-code, "%s", u[0].why);
	for (i = 0; i < n; i++) {
		err = fdry_buf_printf(&text, "%s'%s': %s", i ? "; " : "", u[i].name, u[i].why);
		if (err)
			goto out_release;
		if (code == -FDRY_E_NOENT)
			code = u[i].code;
	}
	err = fdry_fail((enum fdry_errcode)-code, "none of %zu images can be used: %s", n,
			text.data);
out_release:
	fdry_buf_release(&text);
	return err;
}

static int load_any(struct start *s)
{
	double mark = fdry_now_ms();
	size_t i;
	int err = 0;

	unused_clear(s);
	for (i = 0; i < s->o.nnames; i++) {
		err = load_one(s, s->o.names[i]);
		if (!err || !capture_helps(err))
			break;
	}
	s->ret->load_ms += fdry_elapsed_ms(&mark);
	return err && capture_helps(err) ? none_fail(s) : err;
}

/* --- capturing --- */

static int facts_state(const struct start *s, struct fdry_capture *cap)
{
	size_t i;
	int err = 0;

	for (i = 0; i < s->load.nfacts && !err; i++)
		if (strncmp(s->load.facts[i].key, "fdry.", 5))
			err = fdry_capture_fact(cap, s->load.facts[i].key, s->load.facts[i].value);
	return err;
}

static int callback_run(const struct start *s, struct fdry_capture *cap)
{
	int err;

	cap->lent = true;
	err = s->o.fn(s->o.arg, cap);
	cap->lent = false;
	if (err > 0)
		return fdry_fail(
			FDRY_E_CALLBACK,
			"the function that was to capture '%s' returned %d; see why it fails",
			s->ref, err);
	if (err)
		return fdry_fail_at(err, "the function that was to capture '%s'", s->ref);
	if (s->o.stop && s->o.stop(s->o.stop_arg))
		return fdry_fail(FDRY_E_CALLBACK,
				 "the program has ended the start of '%s', before its capture was "
				 "sealed",
				 s->ref);
	return 0;
}

/* The image is whole without its copy in a registry: a push that fails is no error. */
static int pushed(const struct start *s)
{
	enum { CONSTANT, PRIVATE, NOT };
	struct fdry_registry_opts opts = { .sz = sizeof(opts) };
	uint64_t how = NOT;
	int err = fdry_config_number(FDRY_CONFIG_REGISTRY_PUSH, &how);

	if (err || how == NOT)
		return err;
	opts.flags = how == PRIVATE ? FDRY_REGISTRY_PRIVATE : 0;
	if (fdry_store_push(s->store, &s->ref, 1, NULL, &opts, NULL))
		fdry_warn("'%s' was sealed, but not pushed: %s", s->ref, fdry_last_error());
	return 0;
}

/* A seal that fails leaves the capture intact. The report says why it failed, and the caller may
 * seal again. */
static int seal_run(struct start *s, struct fdry_capture *cap)
{
	struct fdry_saved_err o;
	double mark = fdry_now_ms();

	fdry_saved_err_set(&o, fdry_capture_seal(cap, s->store, s->ref, s->ret->id, NULL));
	s->ret->seal_ms = fdry_elapsed_ms(&mark);
	s->ret->seal_code = o.err;
	s->ret->seal_why = strdup(o.why);
	s->ret->name = strdup(s->ref);
	if (!s->ret->seal_why || !s->ret->name)
		return fdry_nomem();
	if (o.err) {
		s->ret->capture = cap;
		return fdry_capture_pause(cap);
	}
	fdry_capture_end(cap);
	return pushed(s);
}

static int capture_run(struct start *s)
{
	struct fdry_capture *cap;
	struct fdry_saved_err o;
	double mark = fdry_now_ms();
	int err;

	err = fdry_capture_begin(&s->capture, &cap);
	if (err)
		return err;
	err = facts_state(s, cap) ?: callback_run(s, cap);
	s->ret->capture_ms = fdry_elapsed_ms(&mark);
	s->ret->captured = 1;
	if (err)
		goto out_end;
	err = seal_run(s, cap);
	if (!err)
		return 0;
out_end:
	fdry_saved_err_set(&o, err);
	fdry_capture_end(cap);
	s->ret->capture = NULL;
	return fdry_saved_err_restore(&o);
}

/* --- one process at a time --- */

static int key_make(const struct start *s, struct fdry_buf *ret)
{
	size_t i;
	int err = fdry_buf_put(ret, s->ref, strlen(s->ref) + 1);

	for (i = 0; i < s->load.nfacts && !err; i++) {
		const struct fdry_fact *f = &s->load.facts[i];

		err = fdry_buf_put(ret, f->key, strlen(f->key) + 1) ?:
		      fdry_buf_put(ret, f->value, strlen(f->value) + 1);
	}
	return err;
}

/* Without a claim (the store is read-only, or the wait was long enough) the process captures all
 * the same. */
static int claim_acquire(struct start *s, bool *waited, struct fdry_claim **ret)
{
	const struct fdry_wait wait = { .ms = s->o.wait_ms ? s->o.wait_ms : WAIT_MS,
					.stop = s->o.stop, .arg = s->o.stop_arg };
	struct fdry_buf key = { 0 };
	double mark = fdry_now_ms();
	int err, none = 0;

	if (s->o.flags & FDRY_START_NOWAIT)
		return 0;
	err = key_make(s, &key);
	if (!err)
		none = fdry_claim_begin(s->store, key.data, key.len, &wait, waited, ret);
	fdry_buf_release(&key);
	if (*waited || none == -FDRY_E_LOCKED)
		s->ret->wait_ms = fdry_elapsed_ms(&mark);
	return none == -FDRY_E_CALLBACK ? none : err;
}

static int capture_alone(struct start *s)
{
	struct fdry_claim *claim = NULL;
	bool waited = false;
	int err;

	err = claim_acquire(s, &waited, &claim);
	if (err)
		return err;
	if (waited)
		err = load_any(s);
	if (!waited || capture_helps(err))
		err = capture_run(s);
	fdry_claim_end(claim);
	return err;
}

static int interposer_fail(const struct start *s)
{
	int err = fdry_saved_err_restore(&s->interposer);

	return fdry_fail_at(err, "'%s' cannot be loaded (%s), and not be captured", s->ref,
			    unused_array(s)[0].why);
}

static int run(struct start *s)
{
	bool strict = s->o.flags & FDRY_START_STRICT;
	int err;

	if (!strict)
		fdry_saved_err_set(&s->interposer, fdry_hook_install(NULL));
	err = load_any(s);
	if (!err || strict || !capture_helps(err))
		return err;
	return s->interposer.err ? interposer_fail(s) : capture_alone(s);
}

/* --- the report --- */

static int text_head(const struct fdry_start_report *r, struct fdry_buf *out)
{
	int err = 0;

	if (r->wait_ms > 0)
		err = fdry_buf_printf(out, "waited %.0f ms for another process\n", r->wait_ms);
	if (err)
		return err;
	if (r->image)
		return fdry_buf_printf(out, "loaded '%s' (image %.12s) in %.1f ms\n", r->name,
				       r->id, r->load_ms);
	err = fdry_buf_printf(out, "captured '%s' in %.1f ms\n", r->name, r->capture_ms);
	if (err)
		return err;
	if (r->seal_code)
		return fdry_buf_printf(out, "not sealed: %s: %s\n", fdry_error_name(r->seal_code),
				       r->seal_why);
	return fdry_buf_printf(out, "sealed as image %.12s in %.1f ms\n", r->id, r->seal_ms);
}

static int text_make(const struct fdry_start_report *r, struct fdry_buf *out)
{
	size_t i;
	int err = text_head(r, out);

	for (i = 0; i < r->nunused && !err; i++) {
		const struct fdry_start_unused *u = &r->unused[i];

		err = fdry_buf_printf(out, "not used: '%s'%s%.12s: %s\n", u->name,
				      *u->id ? " image " : "", u->id, u->why);
	}
	return err;
}

static int report_make(struct start *s)
{
	struct fdry_start_report *r = s->ret;
	struct fdry_buf text = { 0 };
	int err;

	r->nunused = unused_count(s);
	r->unused = unused_array(s);
	memset(&s->unused, 0, sizeof(s->unused)); /* it belongs to the report now */
	err = text_make(r, &text);
	r->text = (char *)text.data;
	return err;
}

void fdry_start_report_free(struct fdry_start_report *r)
{
	size_t i;

	if (!r)
		return;
	for (i = 0; i < r->nunused; i++)
		unused_release((struct fdry_start_unused *)&r->unused[i]);
	free((void *)r->unused);
	free((char *)r->name);
	free((char *)r->seal_why);
	free((char *)r->text);
	free(r);
}

/* --- all of it --- */

static int names_check(const struct fdry_start_opts *o)
{
	size_t i;

	if (!o->names || !o->nnames)
		return fdry_fail(
			FDRY_E_OPTS,
			"fdry_load_or_capture() was given no names; name an image to look for");
	for (i = 0; i < o->nnames; i++)
		if (!o->names[i])
			return fdry_fail(FDRY_E_OPTS, "name %zu for fdry_load_or_capture() is NULL",
					 i);
	return 0;
}

/* Before anything is done, check what a capture would refuse. */
static int facts_check(const struct fdry_load_opts *o)
{
	size_t i;
	int err = 0;

	if (o->nfacts && !o->facts)
		return fdry_fail(FDRY_E_OPTS, "fdry_load_or_capture() was given %zu facts at NULL",
				 o->nfacts);
	for (i = 0; i < o->nfacts && !err; i++) {
		if (!o->facts[i].key || !o->facts[i].value)
			return fdry_fail(FDRY_E_INVAL, "fact %zu has no key or no value", i);
		err = fdry_name_check("fact", o->facts[i].key);
	}
	return err;
}

static int capture_opts_check(const struct start *s)
{
	if (!s->o.fn)
		return fdry_fail(FDRY_E_OPTS, "fdry_load_or_capture() was given no function that "
					      "captures; give one, or be strict");
	if (s->o.capture && s->capture.device != s->load.device)
		return fdry_fail(FDRY_E_OPTS,
				 "images are to be loaded on device %d, and captured on device %d; "
				 "name one device",
				 s->load.device, s->capture.device);
	return fdry_ref_check(s->ref);
}

static int opts_read(struct start *s, const struct fdry_start_opts *opts)
{
	const uint32_t known = FDRY_START_STRICT | FDRY_START_NOWAIT;
	int err;

	err = fdry_opts_take(opts, &s->o, sizeof(s->o));
	if (err)
		return err;
	if (s->o.flags & ~known)
		return fdry_fail(
			FDRY_E_OPTS,
			"fdry_load_or_capture() does not know the flags %#x; use a newer library",
			s->o.flags & ~known);
	err = names_check(&s->o) ?:
	      fdry_opts_take(s->o.load, &s->load, sizeof(s->load)) ?:
	      fdry_opts_take(s->o.capture, &s->capture, sizeof(s->capture)) ?:
	      facts_check(&s->load);
	if (err)
		return err;
	s->ref = s->o.ref ? s->o.ref : s->o.names[0];
	err = s->o.flags & FDRY_START_STRICT ? 0 : capture_opts_check(s);
	s->load.sz = sizeof(s->load);
	if (!s->load.stop) {
		s->load.stop = s->o.stop;
		s->load.stop_arg = s->o.stop_arg;
	}
	s->capture.sz = sizeof(s->capture);
	s->capture.device = s->load.device;
	if (!s->capture.name)
		s->capture.name = s->ref;
	return err;
}

/* Undo a start that failed, and keep its error. */
static int start_undo(struct start *s, int err)
{
	struct fdry_saved_err o;

	fdry_saved_err_set(&o, err);
	fdry_image_unload(s->ret->image);
	fdry_capture_end(s->ret->capture);
	fdry_start_report_free(s->ret);
	return fdry_saved_err_restore(&o);
}

int fdry_load_or_capture(struct fdry_store *store, const struct fdry_start_opts *opts,
			 struct fdry_start_report **ret)
{
	struct start s = { .store = store };
	int err = fdry_need(store) ?: fdry_need(opts) ?: fdry_need(ret) ?: opts_read(&s, opts);

	if (err)
		return err;
	s.ret = calloc(1, sizeof(*s.ret));
	if (!s.ret)
		return fdry_nomem();
	err = run(&s) ?: report_make(&s);
	unused_clear(&s);
	fdry_buf_release(&s.unused);
	if (err)
		return start_undo(&s, err);
	*ret = s.ret;
	return 0;
}
