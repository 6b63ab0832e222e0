/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code_vars.h - the variables of a module: of a cubin, or of an object of the software driver.
 */
#ifndef FDRY_GRAPH_CODE_VARS_H
#define FDRY_GRAPH_CODE_VARS_H

#include "graph/cubin.h"

/* Append the variables of @code as struct fdry_cubin_variable, in an order that follows from @code.
 * Their names are in @code. Errors: FDRY_E_BADCODE, FDRY_E_LIMIT, FDRY_E_NOMEM. */
int fdry_code_vars_list(struct fdry_span code, struct fdry_buf *ret) __must_check;

/* Those of an object of the software driver. All of them are writable. @ret_initial: struct
 * fdry_span for each, as fdry_cubin_initial() returns it; NULL: not wanted. */
int fdry_code_vars_host(struct fdry_span code, struct fdry_buf *ret,
			struct fdry_buf *ret_initial) __must_check;

#endif
