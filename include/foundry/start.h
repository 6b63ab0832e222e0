/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.h - load an image, or capture and seal it if there is none. Part of foundry.h, whose rules
 * for errors, threads, handles and units apply.
 */
#ifndef FOUNDRY_START_H
#define FOUNDRY_START_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/capture.h"
#include "foundry/image.h"
#include "foundry/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Captures the workload: gets a capture that has begun, allocates, warms up, captures, and adds
 * graphs and tensors; does not end it. Returns 0; a negative code of the library, whose message
 * the caller gets; or a positive number of its own (FDRY_E_CALLBACK). */
typedef int (*fdry_capture_fn)(void *arg, struct fdry_capture *cap);

enum fdry_start_flags {
	FDRY_START_STRICT = 1 << 0, /* never capture: if nothing can be loaded, fail and say why */
	FDRY_START_NOWAIT = 1 << 1, /* capture even while another process captures the same */
};

/**
 * struct fdry_start_opts - How to start a workload.
 * @sz: sizeof(struct fdry_start_opts)
 * @names: @nnames images to look for, as for fdry_image_load(), the best first
 * @ref: a name for the sealed image; NULL: the first of @names
 * @load: how to load. Its device and its facts apply to the capture, too; NULL for the defaults
 * @capture: where to capture. If it has no base, the base follows from @ref; NULL for the defaults
 * @fn, @arg: captures; may be NULL if FDRY_START_STRICT is set
 * @flags: of enum fdry_start_flags
 * @wait_ms: the longest wait for a process that captures the same; 0: ten minutes
 * @stop, @stop_arg: NULL, or asked during that wait, when @fn has returned (nothing is sealed then)
 *         and, if @load has no such function, during the loads, as fdry_load_opts.stop is
 */
struct fdry_start_opts {
	size_t sz;
	const char *const *names;
	size_t nnames;
	const char *ref;
	const struct fdry_load_opts *load;
	const struct fdry_capture_opts *capture;
	fdry_capture_fn fn;
	void *arg;
	uint32_t flags;
	uint32_t wait_ms;
	fdry_stop_fn stop;
	void *stop_arg;
};

/**
 * struct fdry_start_unused - An image that was looked for and is not used.
 * @name: from the options
 * @id: of the image found; "" if there is none
 * @field, @wanted, @found: if the image was made for something else (FDRY_E_IDENTITY), the fact
 *         that differs, its value here and in the image; else ""
 * @why: the reason in one sentence
 * @code: -FDRY_E_NOENT, -FDRY_E_IDENTITY, ...
 */
struct fdry_start_unused {
	const char *name, *id, *field, *wanted, *found, *why;
	int code;
};

/**
 * struct fdry_start_report - How a workload started.
 * @image: the loaded image; unload it with fdry_image_unload(). NULL if the workload was captured
 * @captured: 1 if the workload was captured
 * @name, @id: of the image that was loaded or sealed; @id is "" if the seal failed
 * @seal_code, @seal_why: why the captured graphs could not be sealed; 0 and "" if they were sealed.
 *         The graphs can be used in any case
 * @capture: if the seal failed, the capture, paused; the caller may seal it again, and ends it with
 *         fdry_capture_end(). Else NULL: it has ended
 * @unused: @nunused images that were not used
 * @text: all of this for people, in some lines
 * @wait_ms: time spent waiting for another process
 */
struct fdry_start_report {
	struct fdry_image *image;
	struct fdry_capture *capture;
	int captured, seal_code;
	const char *name, *seal_why, *text;
	char id[FDRY_ID_SIZE];
	const struct fdry_start_unused *unused;
	size_t nunused;
	double load_ms, wait_ms, capture_ms, seal_ms;
};

/**
 * fdry_load_or_capture() - Load an image, or capture the workload and seal it.
 * @ret: the result; free it with fdry_start_report_free()
 *
 * The call tries the names in order. If no image can be loaded (there is none, it was made for
 * something else, it is damaged, does not fit, its addresses are in use) it captures with
 * @opts->fn, states the facts of the load, and seals under the ref. Mistakes of the caller and
 * failures of the driver are errors at once, because a capture would fail in the same way.
 *
 * Capturing needs the interposer, which this call installs if libcuda is not loaded yet. So call
 * it, or fdry_hook_install(), before a framework starts. Otherwise it fails (FDRY_E_LATE,
 * FDRY_E_NOHOOK) before @opts->fn runs, but only if nothing can be loaded.
 *
 * If several processes with equal ref and facts find no image, one captures and the others wait,
 * then load. Processes that capture together (ranks) must state facts that differ. If a wait takes
 * too long, or the store cannot be written, a process captures on its own.
 *
 * The call does not compare the code of @opts->fn, only the facts. State facts that change with
 * the code, such as a build id and the revision of the weights.
 *
 * If the function fails, nothing is left in the store, and no capture; the function frees its
 * memory itself. If the seal fails, @ret says so. Other errors: FDRY_E_CALLBACK, FDRY_E_OPTS,
 * FDRY_E_NAME, those of fdry_capture_begin(); with FDRY_START_STRICT the reason why nothing was
 * loaded.
 */
int fdry_load_or_capture(struct fdry_store *store, const struct fdry_start_opts *opts,
			 struct fdry_start_report **ret);
/* Free the report; image and capture stay. NULL is allowed. */
void fdry_start_report_free(struct fdry_start_report *start);

/* ------------------------------------------------------------ before a start --- */

/* Exchanges records of @len bytes among the ranks of a group: gives @mine to all others, and fills
 * @all with the records of all ranks, by rank. Returns 0, or another number if it failed. */
typedef int (*fdry_exchange_fn)(void *arg, const void *mine, void *all, size_t len);

/**
 * struct fdry_pin_opts - What to pin, and for whom.
 * @sz: sizeof(struct fdry_pin_opts)
 * @flags: 0
 * @wait_ms: the longest wait for other ranks of this host; 0: ten minutes
 * @facts: @nfacts facts that the image must have, as in struct fdry_load_opts
 * @group: a name for the ranks of one start, all on this host, which meet through the store. A
 *         later start needs another name. NULL: without a group, or with @exchange
 * @rank, @ranks: this process among the others, at most 4,096; 0 and 0: it is alone
 * @exchange, @exchange_arg: exchanges records among ranks of several hosts, in place of @group
 * @stop, @stop_arg: NULL, or asked during the wait for other ranks, which then do not wait for this
 *         one any more; and while the image is fetched from a registry, as fdry_load_opts.stop is.
 *         Objects that have come stay
 */
struct fdry_pin_opts {
	size_t sz;
	uint32_t flags;
	uint32_t wait_ms;
	const struct fdry_fact *facts;
	size_t nfacts;
	const char *group;
	uint32_t rank, ranks;
	fdry_exchange_fn exchange;
	void *exchange_arg;
	fdry_stop_fn stop;
	void *stop_arg;
};

/**
 * struct fdry_pin_report - Whether an image is here.
 * @sz: set by the caller: sizeof(struct fdry_pin_report)
 * @code: 0: it is complete and pinned, on every rank of the group. Otherwise the code of the
 *         reason, such as -FDRY_E_NOENT, -FDRY_E_IDENTITY or -FDRY_E_LOCKED (not all ranks came)
 * @id: of the image, the newest that fits; "" unless @code is 0
 * @objects, @missing: of this rank's image, and how many of them the store lacks; @bytes: of those
 *         that it has. All images of the name that fit the facts count
 * @ranks_missing, @first_missing: ranks that lack their image, and the first of them
 * @why: the reason in one sentence; "" if @code is 0
 */
struct fdry_pin_report {
	size_t sz;
	int32_t code;
	char id[FDRY_ID_SIZE];
	uint64_t objects, missing, bytes;
	uint32_t ranks_missing, first_missing;
	char why[512];
};

/**
 * fdry_image_pin() - Pin an image on this host completely, or report what is missing.
 * @name: a ref
 * @report: the answer
 *
 * Nothing is loaded and the driver is not started. If the store lacks the image or objects of it,
 * the call fetches them from the registry that FOUNDRY_REGISTRY names. It pins the image
 * (fdry_store_pin()), so that a load finds it until fdry_store_unpin(). If the answer is no, the
 * call ends the pins that it made.
 *
 * All ranks of a group get the same answer: @code is 0 for all, or for none. So either all of them
 * load, or all of them capture. Every rank must make the call, also one that expects to fail. Ranks
 * may name different images. An exchange that fails in some of the ranks alone can give them
 * another answer.
 *
 * The content is not read; a load compares it. The device is not compared either: if hosts differ
 * in it, name a fact for that. Errors, which concern the arguments alone: FDRY_E_OPTS, FDRY_E_NAME,
 * FDRY_E_INVAL, FDRY_E_STATE.
 */
int fdry_image_pin(struct fdry_store *store, const char *name, const struct fdry_pin_opts *opts,
		   struct fdry_pin_report *report);

#ifdef __cplusplus
}
#endif

#endif
