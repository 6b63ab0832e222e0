// SPDX-License-Identifier: Apache-2.0
/*
 * cupti_image.c - checks that the code in an image is the code that ran in the captured process.
 *
 *	cupti_image STORE REF FOLDER
 *
 * FOLDER holds the cubin of every module that was loaded in that process (inject/cupti_dump.c
 * writes them). The code of every kernel object of the image must be in one of them, byte for byte.
 * Then the interposer's notes, the choice in fatbins, decompression and slicing are all correct.
 * cupti_image.sh runs it.
 */
#include <dirent.h>
#include <string.h>

#include "image/manifest.h"
#include "graph/elf.h"
#include "store/store.h"
#include "tests/lib/gpu.h"
#include "tests/lib/need.h"

#define CUBINS_MAX 4096

static struct cubin {
	struct fdry_buf bytes;
	struct fdry_elf elf;
} cubins[CUBINS_MAX];
static unsigned int ncubins;

static void cubin_read(const char *path)
{
	struct cubin *c = &cubins[ncubins];
	char part[65536];
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	while ((n = fread(part, 1, sizeof(part), f)))
		need(fdry_buf_put(&c->bytes, part, n), path);
	fclose(f);
	need(fdry_elf_init((struct fdry_span){ c->bytes.data, c->bytes.len }, &c->elf), path);
	ncubins++;
}

static void cubins_read(const char *folder)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	char path[4096];

	if (!d) {
		perror(folder);
		exit(EXIT_FAILURE);
	}
	while ((e = readdir(d)) && ncubins < CUBINS_MAX) {
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		if (strstr(e->d_name, ".cubin"))
			cubin_read(path);
	}
	closedir(d);
}

static bool is_code(const struct fdry_elf_section *s)
{
	return !strncmp(s->name, ".text.", 6);
}

static bool has(const struct fdry_elf *e, const struct fdry_elf_section *code)
{
	const struct fdry_elf_section *s;
	uint32_t i;

	for (i = 1; i < e->nsections; i++) {
		s = &e->sections[i];
		if (s->data.len == code->data.len && !strcmp(s->name, code->name) &&
		    !memcmp(s->data.data, code->data.data, s->data.len))
			return true;
	}
	return false;
}

/* Does one cubin hold all the code of an object, which is not nothing? */
static bool ran(const struct fdry_elf *object)
{
	uint32_t i, found, codes;
	unsigned int c;

	for (c = 0; c < ncubins; c++) {
		for (codes = found = 0, i = 1; i < object->nsections; i++)
			if (is_code(&object->sections[i])) {
				codes++;
				found += has(&cubins[c].elf, &object->sections[i]);
			}
		if (codes && found == codes)
			return true;
	}
	return false;
}

static bool kernel_check(struct fdry_reader *reader, const struct fdry_manifest *m, uint32_t i)
{
	const char *name = fdry_manifest_str(m, m->kernels[i].name);
	struct fdry_buf bytes = { 0 };
	struct fdry_elf elf;
	bool ok;

	need(fdry_reader_copy(reader, &m->objects[m->kernels[i].object].oid, &bytes), name);
	need(fdry_elf_init((struct fdry_span){ bytes.data, bytes.len }, &elf), name);
	ok = ran(&elf);
	if (!ok)
		printf("FAIL %.150s: no module that was loaded holds its code\n", name);
	fdry_elf_release(&elf);
	fdry_buf_release(&bytes);
	return ok;
}

static uint32_t image_check(const char *path, const char *ref, uint32_t *count)
{
	struct fdry_buf bytes = { 0 };
	struct fdry_manifest m;
	struct fdry_store *s;
	struct fdry_reader *reader;
	struct fdry_oid oid;
	uint32_t i, bad = 0;

	need(fdry_store_open(path, 0, &s), path);
	need(fdry_reader_begin(s, &reader), path);
	need(fdry_reader_resolve(reader, ref, &oid), ref);
	need(fdry_reader_copy(reader, &oid, &bytes), ref);
	need(fdry_manifest_init((struct fdry_span){ bytes.data, bytes.len }, &m), ref);
	for (i = 0; i < m.n_kernels; i++)
		bad += !kernel_check(reader, &m, i);
	*count = m.n_kernels;
	fdry_buf_release(&bytes);
	fdry_reader_end(reader);
	fdry_store_close(s);
	return bad;
}

int main(int argc, char **argv)
{
	uint32_t n = 0, bad;

	if (argc !=
	    4) { /* tests/run starts every program, but this one needs the files that cupti_image.sh
		    makes */
		printf("100%%: Checks: 0, Failures: 0, Errors: 0\n");
		return EXIT_SUCCESS;
	}
	cubins_read(argv[3]);
	bad = image_check(argv[1], argv[2], &n);
	printf("%u kernels, %u modules were loaded\n", n, ncubins);
	return gpu_end(n, bad);
}
