// SPDX-License-Identifier: Apache-2.0
/* boot.c - the kernel's boot id, which notes that are valid for one boot contain. */
#include <stdio.h>
#include <stdlib.h>

#include "store/internal.h"

/* "9f3c...-....", as 16 bytes. */
bool fdry_boot_id(uint8_t ret[16])
{
	char text[64] = "", pair[3] = "";
	FILE *f = fdry_fopen_read("/proc/sys/kernel/random/boot_id");
	size_t i, n = 0;
	char *end;

	if (f && !fgets(text, sizeof(text), f))
		*text = '\0';
	if (f)
		fclose(f);
	for (i = 0; text[i] && n < 16; i++) {
		if (text[i] == '-')
			continue;
		pair[0] = text[i];
		pair[1] = text[++i];
		ret[n++] = (uint8_t)strtoul(pair, &end, 16);
		if (end != pair + 2)
			return false;
	}
	return n == 16;
}
