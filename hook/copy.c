// SPDX-License-Identifier: Apache-2.0
/*
 * copy.c - copies large device code while the driver loads it.
 *
 * Libraries unpack cubins of many megabytes, load them and free them. Copying costs less than
 * loading, so a separate thread has finished the copy when the driver returns.
 *
 * The driver has not accepted the code yet, so the length in its headers may be wrong. So the
 * thread passes the code to write(), to a file in memory, also to read the headers. For addresses
 * that cannot be read, the Linux kernel then returns an error.
 *
 * The thread calls no function of the loader: the thread that waits for it may hold the loader's
 * lock.
 */
#include "lib/file.h"
#include "hook/internal.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Copying less than this is faster than starting a thread. */
#define WORTH_A_THREAD (256u << 10)

/* The largest table of an ELF file. */
#define TABLE_MAX (UINT16_MAX * sizeof(Elf64_Shdr))

/* Read the @n entries at offset @at of the ELF file at @image; NULL if they cannot be read. The
 * caller must free() them. */
static void *table_read(int fd, const void *image, uint64_t at, size_t n, size_t entry)
{
	size_t len = n * entry;
	void *ret = len <= TABLE_MAX ? malloc(len + 1) : NULL;

	if (ret && !fdry_pwrite(fd, (const void *)((uintptr_t)image + at), len, 0) &&
	    pread(fd, ret, len, 0) == (ssize_t)len)
		return ret;
	free(ret);
	return NULL;
}

/* The end of the ELF file; 0 if its headers are wrong. */
static size_t length(int fd, const Elf64_Ehdr *eh, const void *image)
{
	void *sections = table_read(fd, image, eh->e_shoff, eh->e_shnum, eh->e_shentsize);
	void *segments = table_read(fd, image, eh->e_phoff, eh->e_phnum, eh->e_phentsize);
	size_t ret = sections && segments ? fdry_code_elf_len(eh, sections, segments) : 0;

	free(sections);
	free(segments);
	return ret;
}

static void *work(void *arg)
{
	struct fdry_copy *c = arg;
	int fd = fdry_memfd("foundry-code");
	void *data = MAP_FAILED;
	Elf64_Ehdr eh;
	size_t len;

	if (fd < 0)
		return NULL;
	memcpy(&eh, c->image, sizeof(eh));
	len = length(fd, &eh, c->image);
	if (len && !fdry_pwrite(fd, c->image, len, 0))
		data = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (data != MAP_FAILED) {
		c->data = data;
		c->len = len;
	}
	return NULL;
}

/* Reading the headers directly is safe, since the driver reads them next. */
static bool is_large_elf(const void *image)
{
	Elf64_Ehdr eh;

	if (memcmp(image, ELFMAG, SELFMAG))
		return false;
	memcpy(&eh, image, sizeof(eh));
	return eh.e_ident[EI_CLASS] == ELFCLASS64 &&
	       (eh.e_shoff > WORTH_A_THREAD || eh.e_phoff > WORTH_A_THREAD);
}

void fdry_copy_begin(const void *image, struct fdry_copy *c)
{
	sigset_t all, old;

	*c = (struct fdry_copy){ .image = image };
	if (!image || fdry_start_is_forked() || !is_large_elf(image) || fdry_loaded_holds(image))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's own threads handle signals */
	c->running = !pthread_create(&c->thread, NULL, work, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void wait_for(struct fdry_copy *c)
{
	if (c->running)
		pthread_join(c->thread, NULL);
	c->running = false;
}

bool fdry_copy_take(struct fdry_copy *c, struct fdry_kept *ret)
{
	wait_for(c);
	if (!c->data)
		return false;
	*ret = (struct fdry_kept){ .kind = FDRY_CODE_ELF,
				   .data = c->data,
				   .len = c->len,
				   .alloc = c->data,
				   .mapped = c->len };
	c->data = NULL;
	return true;
}

void fdry_copy_end(struct fdry_copy *c)
{
	wait_for(c);
	if (c->data)
		munmap(c->data, c->len);
}
