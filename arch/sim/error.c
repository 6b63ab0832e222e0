// SPDX-License-Identifier: Apache-2.0
/* error.c - names and descriptions of results. */
#include <ctype.h>
#include <string.h>

#include "arch/sim/sim.h"

#define TEXT_MAX 64

static const struct {
	CUresult code;
	const char *name;
} errors[] = {
#define SIM_ERROR(name) { name, #name },
#include "arch/sim/error.def"
#undef SIM_ERROR
};

#define ERRORS (sizeof(errors) / sizeof(errors[0]))

static char texts[ERRORS][TEXT_MAX];

static int error_index(CUresult code)
{
	size_t i;

	for (i = 0; i < ERRORS; i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

CUresult cuGetErrorName(CUresult error, const char **ret)
{
	int i = error_index(error);

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = i < 0 ? NULL : errors[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* "CUDA_ERROR_OUT_OF_MEMORY" becomes "out of memory". */
static void text_make(const char *name, char *to)
{
	size_t i, skip = strncmp(name, "CUDA_ERROR_", 11) ? 5 : 11;

	for (i = 0; name[skip + i] && i < TEXT_MAX - 1; i++)
		to[i] = name[skip + i] == '_' ? ' ' : (char)tolower((unsigned char)name[skip + i]);
	to[i] = '\0';
}

CUresult cuGetErrorString(CUresult error, const char **ret)
{
	int i = error_index(error);

	SIM_ENTER(cuGetErrorString);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = NULL;
	if (i < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!texts[i][0])
		text_make(errors[i].name, texts[i]);
	*ret = texts[i];
	return CUDA_SUCCESS;
}
