/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devcode.h - device code for tests on a GPU: that in files, and the context that runs it.
 */
#ifndef FDRY_TESTS_GPU_DEVCODE_H
#define FDRY_TESTS_GPU_DEVCODE_H

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu.h"
#include "graph/elf.h"
#include "graph/fatbin.h"

/* @bytes: a cubin, or a place where a fatbin begins with all that follows it in the file. */
typedef void (*devcode_fn)(const char *file, struct fdry_span bytes);

static inline void devcode_each(const char *file, struct fdry_span bytes, devcode_fn fn)
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

/* Every piece of device code in a shared library, fatbin or cubin; non-zero where there is no such file. */
static inline int devcode_file(const char *path, devcode_fn fn)
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

/* Device 0's primary context becomes current; gives 10 * major + minor. Ends the program where that fails. */
static inline unsigned int devcode_context(const struct fdry_driver *drv)
{
	int major = 0, minor = 0, err;
	CUcontext ctx;
	CUdevice dev;

	err = fdry_call(drv, cuDeviceGet, &dev, 0);
	if (!err)
		err = fdry_call(drv, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
	if (!err)
		err = fdry_call(drv, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
	if (!err)
		err = fdry_call(drv, cuDevicePrimaryCtxRetain, &ctx, dev);
	if (!err)
		err = fdry_call(drv, cuCtxSetCurrent, ctx);
	if (err) {
		fprintf(stderr, "%s\n", fdry_last_error());
		exit(EXIT_FAILURE);
	}
	return (unsigned int)(10 * major + minor);
}

#endif
