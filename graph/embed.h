/* SPDX-License-Identifier: Apache-2.0 */
/* embed.h - files that the assembler puts into the library. */
#ifndef FDRY_GRAPH_EMBED_H
#define FDRY_GRAPH_EMBED_H

#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"

/* Embed a file, and declare its first byte and its end: @symbol and @symbol_end. The makefile must
 * name the file as a prerequisite of the object. */
#define FDRY_EMBED(symbol, file) \
	__asm__(".pushsection .rodata, \"a\", %progbits\n" \
		".balign 16\n" \
		".hidden " #symbol "\n" \
		".global " #symbol "\n" \
		#symbol ":\n" \
		".incbin \"" file "\"\n" \
		".hidden " #symbol "_end\n" \
		".global " #symbol "_end\n" \
		#symbol "_end:\n" \
		".byte 0\n" \
		".popsection\n"); \
	extern const uint8_t symbol[] __attribute__((visibility("hidden"))); \
	extern const uint8_t symbol##_end[] __attribute__((visibility("hidden")))

static inline struct fdry_span fdry_embedded(const uint8_t *from, const uint8_t *end)
{
	return (struct fdry_span){ from, (size_t)(end - from) };
}

#endif
