/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.h - load an image, or capture and seal it if there is none. Part of foundry.h, whose rules for errors,
 * threads, handles and units apply.
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

/* Captures: is given a capture that has begun, allocates, warms up, captures, and adds
 * graphs and tensors to it; does not end it. 0; a negative code of the library's, whose
 * sentence is handed on; or a positive number of its own (FDRY_E_CALLBACK). */
typedef int (*fdry_capture_fn)(void *arg, struct fdry_capture *cap);

enum fdry_start_flags {
	FDRY_START_STRICT = 1 << 0, /* never capture: where nothing can be loaded, fail and say why */
	FDRY_START_NOWAIT = 1 << 1, /* capture also while another process captures the same */
};

/**
 * struct fdry_start_opts - How to start a workload.
 * @sz: sizeof(struct fdry_start_opts)
 * @names: @nnames images to look for, as for fdry_image_load(), the best first
 * @ref: what to call the image that is sealed; NULL: the first of @names
 * @load: how to load: the device and the facts count for capturing too; NULL for the
 *        defaults
 * @capture: where to capture; the base follows from @ref unless said; NULL for the defaults
 * @fn, @arg: captures; may be NULL where FDRY_START_STRICT is set
 * @flags: of enum fdry_start_flags
 * @wait_ms: how long to wait for a process that captures the same; 0: ten minutes
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
};

/**
 * struct fdry_start_unused - An image that was looked for and is not used.
 * @name: as it was asked for
 * @id: of the image found; "" where there is none
 * @field, @wanted, @found: the fact that differs, its value here and in the image, where
 *        the image was made for something else (FDRY_E_IDENTITY); else ""
 * @why: the sentence
 * @code: -FDRY_E_NOENT, -FDRY_E_IDENTITY, ...
 */
struct fdry_start_unused {
	const char *name, *id, *field, *wanted, *found, *why;
	int code;
};

/**
 * struct fdry_start_report - How a workload started.
 * @image: what was loaded; yours until fdry_image_unload(). NULL where it was captured.
 * @captured: 1 where it was
 * @name, @id: of the image that was loaded or sealed; @id is "" where sealing failed
 * @seal_code, @seal_why: why the captured graphs could not be sealed; 0 and "" where they
 *        were. They can be used all the same
 * @capture: where sealing failed: the capture, paused; yours until fdry_capture_end(), to
 *        be sealed again perhaps. Else NULL: it has ended
 * @unused: @nunused images that were not used
 * @text: all of it for people, some lines
 * @wait_ms: waited for another process
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
 * @ret: what came of it, yours until fdry_start_report_free()
 *
 * Tries the names in order. Where none can be loaded (there is none, it was made for
 * something else, it is damaged, does not fit, its addresses are taken) it captures with
 * @opts->fn, states the facts of the load, and seals under the ref. Mistakes of the caller
 * and failures of the driver are errors at once: a capture would meet them too.
 *
 * Capturing needs the stand-in, which this puts in place where libcuda is not loaded yet:
 * call it, or fdry_hook_install(), before a framework. Where that is not so it fails
 * (FDRY_E_LATE, FDRY_E_NOHOOK) before @opts->fn runs, but only once nothing can be loaded.
 *
 * Of processes with equal ref and facts that find nothing one captures, the others wait,
 * then load. Processes that capture together (ranks) state facts that differ. A wait that
 * takes too long, or a store that cannot be written, makes a process capture on its own.
 *
 * Of the code behind @opts->fn nothing is compared but the facts: state those that change with it,
 * such as a build id and the revision of the weights.
 *
 * A function that fails leaves nothing in the store, and no capture; its memory is its own.
 * A seal that fails is told in @ret. Errors beside those: FDRY_E_CALLBACK, FDRY_E_OPTS,
 * FDRY_E_NAME, those of fdry_capture_begin(); with FDRY_START_STRICT why nothing was loaded.
 */
int fdry_load_or_capture(struct fdry_store *store, const struct fdry_start_opts *opts, struct fdry_start_report **ret);
/* Free the report; image and capture stay. NULL is fine. */
void fdry_start_report_free(struct fdry_start_report *start);

#ifdef __cplusplus
}
#endif

#endif
