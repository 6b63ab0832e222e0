/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - graphs, kernels, memory and numbers for programs that need no image.
 *
 * A program that captures and launches CUDA graphs in one process uses this header alone. It needs
 * neither the interposer nor a store:
 *
 *   foundry/run/cudagraph.h   CUDA graphs, and pools of memory that graphs share
 *   foundry/run/slots.h       tables of executable graphs that can be replaced while they run
 *   foundry/run/scalars.h     numbers in device memory that change between launches
 *   foundry/run/kernels.h     a cache of compiled kernels
 *   foundry/run/device.h      a device, its context, cooperative launches
 *   foundry/run/pool.h        memory, streams and events that are used again; buffers by handle
 *
 * A program that also seals or loads images includes foundry.h as well. Its rules for errors,
 * threads, handles and units apply here, too.
 */
#ifndef FOUNDRY_RUN_H
#define FOUNDRY_RUN_H

#include "foundry/config.h"
#include "foundry/error.h"
#include "foundry/run/cudagraph.h"
#include "foundry/run/device.h"
#include "foundry/run/kernels.h"
#include "foundry/run/pool.h"
#include "foundry/run/scalars.h"
#include "foundry/run/slots.h"
#include "foundry/telemetry.h"

#endif
