// SPDX-License-Identifier: Apache-2.0
/* devcode.c - see devcode.h. */
#include "tests/lib/devcode.h"

static void devcode_each(const char *file, struct fdry_span bytes, devcode_fn fn)
{
	static const uint8_t magic[8] = { 0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0 };
	const uint8_t *p = bytes.data, *end = bytes.data + bytes.len;

	if (fdry_elf_machine(bytes) == FDRY_EM_CUDA) {
		fn(file, bytes);
		return;
	}
	while ((p = memmem(p, (size_t)(end - p), magic, sizeof(magic)))) {
		fn(file, (struct fdry_span){ p, (size_t)(end - p) });
		p += sizeof(magic);
	}
}

int devcode_file(const char *path, devcode_fn fn)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *p;

	if (fd < 0 || fstat(fd, &st)) {
		perror(path);
		return 1;
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED) {
		perror(path);
		return 1;
	}
	devcode_each(path, (struct fdry_span){ p, (size_t)st.st_size }, fn);
	munmap(p, (size_t)st.st_size);
	return 0;
}
