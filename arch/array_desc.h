/* SPDX-License-Identifier: Apache-2.0 */
/* array_desc.h - descriptors of CUDA arrays in their newest form. The includer reads cuda.h: it may
 * export the functions in there. */
#ifndef FDRY_ARCH_ARRAY_DESC_H
#define FDRY_ARCH_ARRAY_DESC_H

/* The descriptor of an array of one or two dimensions. The structures of both versions of CUDA's
 * interface have these members. */
#define FDRY_ARRAY_DESC_FLAT(d) \
	((CUDA_ARRAY3D_DESCRIPTOR){ .Width = (d)->Width, .Height = (d)->Height, \
				    .Format = (d)->Format, .NumChannels = (d)->NumChannels })

#endif
