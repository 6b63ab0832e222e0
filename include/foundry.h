/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foundry.h - capture CUDA graphs once, load and launch them in any later process.
 *
 * One process captures CUDA graphs and seals them, with the kernels that they call and the memory
 * that they read, into an image in a store. Any later process loads the image by its name or hash
 * and launches the graphs: no warm-up, no capture, no framework. The capturing process runs with
 * the interposer, a library loaded as libcuda.so.1 that passes calls to the driver and records
 * them.
 *
 *   Capturing                                Loading
 *   fdry_hook_install()                      fdry_store_open()
 *   fdry_capture_begin()                     fdry_image_load()
 *   ... allocate, warm up, capture ...       fdry_image_write()   inputs
 *   fdry_capture_tensor(), _graph()          fdry_image_launch()  graphs by key
 *   fdry_capture_seal()                      fdry_image_read()    outputs
 *
 * Programs without images use foundry/run.h, which this header does not include.
 *
 * Errors: every function that can fail returns 0 or a negative -FDRY_E_... code (see errcode.def).
 * fdry_last_error() returns a message, one sentence, that says what was wrong and what to do. A
 * call that fails leaves nothing half done. Out parameters are written on success only. The library
 * never prints, exits or aborts.
 *
 * Threads: any thread may call any function. An object serialises the calls on it, unless a
 * function says otherwise. fdry_last_error() is per thread. Nothing survives fork(): in the child,
 * captures and images return FDRY_E_FORKED.
 *
 * Handles: the caller closes each object once, by the function that its header names (_close,
 * _free, _put, _end or _unload). Every function then returns FDRY_E_STALE for it; a second close
 * does nothing. A close in a callback of the same object (progress, profiling, a capture in
 * fdry_load_or_capture()) does nothing, either: FDRY_E_STATE. Close functions return nothing, so
 * fdry_last_error() has the message. Objects are known by their address: a new object may have the
 * address of a closed one. The caller must not close an object while another thread is in a call
 * with it. The library notices only one such case: a store that exports, imports, evicts or
 * collects stays open.
 *
 * Names: _open and _close for what lies on disk, _new and _free for what the library allocates,
 * _get and _put for references, _begin and _end for a period. Structs: _opts has options, _stats
 * counters, _info the answer to a question, _report what a call did.
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
#include "foundry/kernel_times.h"
#include "foundry/registry.h"
#include "foundry/rng.h"
#include "foundry/selftest.h"
#include "foundry/start.h"
#include "foundry/store.h"
#include "foundry/telemetry.h"
#include "foundry/tensor.h"
#include "foundry/types.h"

#endif
