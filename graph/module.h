/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.h - the one way in which device code becomes a module.
 *
 * The driver receives a pointer without a length and trusts the headers of the code, so every
 * header is checked first. tests/static/source.sh finds other calls that load modules.
 */
#ifndef FDRY_GRAPH_MODULE_H
#define FDRY_GRAPH_MODULE_H

#include "lib/buf.h"
#include "arch/driver.h"

/**
 * fdry_module_check() - Check that a driver which reads @code reads nothing outside of it.
 * @drv: the driver that will load it
 * @code: a cubin, or an object of the software driver if @drv is that
 *
 * Section table, sections, names, symbols, relocations and program headers must lie inside
 * @code. Fatbins, their wrappers and PTX are refused: fdry_devcode_init() finds the code in a
 * fatbin, and PTX is compiled with its length (cuLinkAddData).
 *
 * Errors: FDRY_E_BADCODE, FDRY_E_LIMIT, FDRY_E_NOMEM.
 */
int fdry_module_check(const struct fdry_driver *drv, struct fdry_span code) __must_check;

/* Whether the module has variables that kernels can write and later launches can read; true if
 * @code is malformed. Strings of assertions lie in writable memory and do not count. */
bool fdry_module_has_variables(struct fdry_span code);

/**
 * fdry_module_load() - Check @code, then load it as a module of the current context.
 * @code: as in fdry_module_check(); the driver copies it
 * @ret: the module; cuModuleUnload() ends it
 * @res: the driver's result; CUDA_ERROR_INVALID_IMAGE if the check refused the code
 *
 * Errors: those of fdry_module_check() and of cuModuleLoadDataEx(), as fdry_driver_result() reports
 * them.
 */
int fdry_module_load(const struct fdry_driver *drv, struct fdry_span code, CUmodule *ret,
		     CUresult *res) __must_check;

#endif
