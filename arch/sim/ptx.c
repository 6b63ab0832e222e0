// SPDX-License-Identifier: Apache-2.0
/*
 * ptx.c - "compiling" PTX.
 *
 * There is no compiler here. But the code around a compiler must be tested, so PTX may hold its own
 * result: lines of hexadecimal digits, each after SIM_PTX_MARK, which together are an object of the
 * software driver. To other readers they are comments. The build makes such a .ptx from every
 * .cubin. Any other PTX is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "arch/sim/code.h"

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The digits of one line, as bytes, up to the first other character. */
static size_t line_decode(const char *line, unsigned char *to)
{
	size_t n = 0;

	while (digit(line[2 * n]) >= 0 && digit(line[2 * n + 1]) >= 0) {
		to[n] = (unsigned char)(digit(line[2 * n]) << 4 | digit(line[2 * n + 1]));
		n++;
	}
	return n;
}

CUresult sim_ptx_image(const char *text, struct sim_image *ret)
{
	unsigned char *bytes = malloc(strlen(text) / 2 + 1);
	struct sim_image image;
	const char *line = text;
	size_t size = 0;

	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while ((line = strstr(line, SIM_PTX_MARK)) != NULL) {
		line += strlen(SIM_PTX_MARK);
		size += line_decode(line, bytes + size);
	}
	if (sim_image_elf(bytes, size, &image)) {
		free(bytes);
		return CUDA_ERROR_INVALID_PTX;
	}
	image.owned = bytes;
	*ret = image;
	return CUDA_SUCCESS;
}
