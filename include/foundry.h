/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foundry.h - bring captured GPU work back to life.
 *
 * One process captures CUDA graphs and seals them, with the kernels they call and the
 * memory they read, into an image in a store. Any later process loads the image by its
 * name or hash and launches the graphs: no warm-up, no capture, no framework.
 *
 *   Capturing                                Loading
 *   fdry_hook_install()                      fdry_store_open()
 *   fdry_capture_begin()                     fdry_image_load()
 *   ... allocate, warm up, capture ...       fdry_image_write()   inputs
 *   fdry_capture_tensor(), _graph()          fdry_image_launch()  graphs by key
 *   fdry_capture_seal()                      fdry_image_read()    outputs
 *
 * Errors: every function that can fail returns 0 or a negative -FDRY_E_... code (see
 * errcode.def); fdry_last_error() has one sentence that says what was wrong and what to
 * do. A call that fails leaves nothing half done. Out parameters are written on success
 * only. The library never prints, exits or aborts.
 *
 * Threads: any function may be called from any thread. Calls on one object are serialised
 * by the object, except where a function says otherwise. fdry_last_error() is per thread.
 * Nothing survives fork(): in the child, captures and images answer FDRY_E_FORKED.
 *
 * Handles: the caller closes each object once, by the function that its header names. Every function then
 * answers FDRY_E_STALE for it; a second close does nothing. A close within a function of the caller's that the
 * object itself is calling (progress, profiling, a capture that was lent) does nothing, either: FDRY_E_STATE. Close
 * functions return nothing, so fdry_last_error() has the sentence. Objects are told apart by address: a new object may
 * have the address of one that was closed. The caller must not close an object while another thread is in a call with
 * it. Only one case of that is noticed: a store that exports, imports, evicts or collects stays open.
 *
 * Units: sizes and offsets are bytes, times are milliseconds.
 */
#ifndef FOUNDRY_H
#define FOUNDRY_H

#include <stddef.h>
#include <stdint.h>
#include "foundry/capture.h"
#include "foundry/config.h"
#include "foundry/error.h"
#include "foundry/image.h"
#include "foundry/rng.h"
#include "foundry/start.h"
#include "foundry/store.h"
#include "foundry/telemetry.h"
#include "foundry/tensor.h"
#include "foundry/types.h"

#endif
