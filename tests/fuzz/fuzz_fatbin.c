// SPDX-License-Identifier: Apache-2.0
/* Fuzz target: the input is read as device code, and the code for a few devices is looked up in it.
 */
#include <stdlib.h>

#include "graph/fatbin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const unsigned int ccs[] = { 80, 90, 100, 103 };
	struct fdry_devcode code;
	size_t i;

	for (i = 0; i < sizeof(ccs) / sizeof(ccs[0]); i++)
		if (len && !fdry_devcode_init(data, len, ccs[i], &code))
			fdry_devcode_release(&code);
	return 0;
}
