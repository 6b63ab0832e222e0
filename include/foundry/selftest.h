/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.h - self-tests: graphs are replayed on inputs that a seed determines, at the seal and
 * after a load, and their outputs are compared. Part of foundry.h, whose rules for errors, threads,
 * handles and units apply.
 */
#ifndef FOUNDRY_SELFTEST_H
#define FOUNDRY_SELFTEST_H

#include <stddef.h>
#include <stdint.h>

#include "foundry/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fdry_capture;
struct fdry_image;

/**
 * fdry_capture_selftest() - Let the next seals replay their graphs and record the outputs.
 * @seed: determines the inputs; 0: no self-test
 *
 * A seal then replays its graphs in the order of their keys, twice, with different bytes in
 * scratch. It records the fingerprint of each output, and of each state tensor that is not
 * external, after each graph. A tensor with two values is marked as unstable. Then the seal puts
 * all memory back: content, external tensors, host tensors, pinned memory, module variables.
 *
 * Before each graph, inputs of floating point get values from the seed, and external inputs of
 * other types zeros. Other inputs keep their bytes, since not every number is a valid index.
 * External tensors that are no inputs get such values or zeros once. A kernel that these values let
 * access invalid memory ends the context of the capturing program. Graphs that wait for other
 * processes must not be tested. Graphs with host nodes, events, conditional nodes, or memory
 * operations that wait are left out; a warning (FOUNDRY_LOG) names each with the reason.
 *
 * The seal needs as much host memory as the region has content and external memory. A seal with a
 * self-test fails with FDRY_E_REFUSED if an external host tensor is no input, and with
 * FDRY_E_STATE if no tensor can be compared.
 */
int fdry_capture_selftest(struct fdry_capture *cap, uint64_t seed);

/**
 * struct fdry_selftest_report - What a self-test compared.
 * @sz: set by the caller: sizeof(struct fdry_selftest_report)
 * @graphs: graphs that were replayed
 * @left_out: graphs that the seal could not replay
 * @outputs: results that were compared, over all graphs
 * @differ: those that have other bytes than at the seal
 * @unstable: results that the seal marked as unstable, which are not compared
 */
struct fdry_selftest_report {
	size_t sz;
	uint64_t graphs, left_out, outputs, differ, unstable;
	double ms;
};

/* Called for each result that differs, with one sentence. */
typedef void (*fdry_selftest_fn)(void *arg, const char *text);

/**
 * fdry_image_selftest() - Replay the graphs of an image as its seal did, and compare the outputs.
 * @fn: called for each difference; may be NULL
 * @report: NULL, or receives what was compared, also after FDRY_E_CORRUPT
 *
 * The call restores content before and afterwards, as fdry_image_restore() does. Random number
 * generators get their states back. External tensors lose their content: they must be filled again
 * before the next launch. Nothing else may use the image during the call.
 *
 * Errors: FDRY_E_CORRUPT names the first result that differs. FDRY_E_STATE: the image has no
 * self-test, was loaded into a capture, or has a tensor of another size than at the seal.
 */
int fdry_image_selftest(struct fdry_image *img, fdry_selftest_fn fn, void *arg,
			struct fdry_selftest_report *report);

#ifdef __cplusplus
}
#endif

#endif
