// SPDX-License-Identifier: Apache-2.0
/* registry_push_parts.c - registry/client/push.c with manifests of 4 layers, so that small images
 * have an index. */
#include "registry/client/manifest.h"

#undef FDRY_MANIFEST_LAYERS
#define FDRY_MANIFEST_LAYERS 4u
#include "registry/client/push.c"
