// SPDX-License-Identifier: Apache-2.0
/*
 * module.c - notes device code from every call that loads it, after the driver has accepted it.
 *
 * The output of the linker and of run-time compilers is loaded by cuModuleLoadData, like other code
 * in memory. This file also reads files of code, since they may be deleted before the seal. A file
 * that changed while the driver read it is noted as unknown.
 */
#include "lib/fd.h"
#include "hook/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

CUresult cuModuleLoadData(CUmodule *ret, const void *image)
{
	struct fdry_copy copy;
	CUresult res;

	if (fdry_bypass_probing())
		return CUDA_ERROR_INVALID_IMAGE;
	fdry_copy_begin(image, &copy);
	res = fdry_real(cuModuleLoadData)(ret, image);
	if (!res)
		fdry_note(&(struct fdry_load){ .module = *ret, .image = image, .copy = &copy });
	fdry_copy_end(&copy);
	return res;
}

CUresult cuModuleLoadDataEx(CUmodule *ret, const void *image, unsigned int n, CUjit_option *options,
			    void **values)
{
	struct fdry_copy copy;
	CUresult res;

	fdry_copy_begin(image, &copy);
	res = fdry_real(cuModuleLoadDataEx)(ret, image, n, options, values);
	if (!res)
		fdry_note(&(struct fdry_load){ .module = *ret,
					       .image = image,
					       .copy = &copy,
					       .n = n,
					       .options = options,
					       .values = values });
	fdry_copy_end(&copy);
	return res;
}

CUresult cuModuleLoadFatBinary(CUmodule *ret, const void *image)
{
	CUresult res = fdry_real(cuModuleLoadFatBinary)(ret, image);

	if (!res)
		fdry_note(&(struct fdry_load){ .module = *ret, .image = image });
	return res;
}

CUresult cuLibraryLoadData(CUlibrary *ret, const void *image, CUjit_option *options, void **values,
			   unsigned int n, CUlibraryOption *lib_options, void **lib_values,
			   unsigned int lib_n)
{
	struct fdry_copy copy;
	CUresult res;

	if (fdry_bypass_probing())
		return CUDA_ERROR_INVALID_IMAGE;
	fdry_copy_begin(image, &copy);
	res = fdry_real(cuLibraryLoadData)(ret, image, options, values, n, lib_options, lib_values,
					   lib_n);
	if (!res)
		fdry_note(&(struct fdry_load){ .library = *ret,
					       .image = image,
					       .copy = &copy,
					       .n = n,
					       .options = options,
					       .values = values });
	fdry_copy_end(&copy);
	return res;
}

CUresult cuLibraryGetModule(CUmodule *ret, CUlibrary library)
{
	CUresult res = fdry_real(cuLibraryGetModule)(ret, library);

	if (!res)
		fdry_note_alias(library, *ret);
	return res;
}

/* Note the module of the function, since a graph may report the function only by its module. */
CUresult cuKernelGetFunction(CUfunction *ret, CUkernel kern)
{
	CUresult res = fdry_real(cuKernelGetFunction)(ret, kern);
	CUlibrary library;
	CUmodule module;

	if (!res && !fdry_real(cuKernelGetLibrary)(&library, kern) &&
	    !fdry_real(cuFuncGetModule)(&module, *ret))
		fdry_note_alias(library, module);
	return res;
}

/* The state of a file before the driver read it. */
struct file {
	int fd;
	struct stat st;
};

static void file_open(const char *path, struct file *f)
{
	int saved = errno;

	f->fd = path && !fdry_start_is_forked() ? fdry_open(path, O_RDONLY, 0) : -1;
	if (f->fd >= 0 && (fstat(f->fd, &f->st) || !S_ISREG(f->st.st_mode))) {
		close(f->fd);
		f->fd = -1;
	}
	errno = saved;
}

/* True if @path is still the file that was opened, and unchanged. */
static bool file_same(const struct file *f, const char *path)
{
	struct stat st;

	return !stat(path, &st) && st.st_dev == f->st.st_dev && st.st_ino == f->st.st_ino &&
	       st.st_size == f->st.st_size && st.st_mtim.tv_sec == f->st.st_mtim.tv_sec &&
	       st.st_mtim.tv_nsec == f->st.st_mtim.tv_nsec;
}

/* The whole file with a NUL at its end; NULL after a failure. */
static void *file_read(const struct file *f)
{
	size_t len = (size_t)f->st.st_size, done = 0;
	char *data = calloc(1, len + 1);
	ssize_t n = 1;

	while (data && done < len && n > 0) {
		n = pread(f->fd, data + done, len - done, (off_t)done);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			done += (size_t)n;
	}
	if (done == len)
		return data;
	free(data);
	return NULL;
}

static void file_note(struct file *f, const char *path, const struct fdry_load *load)
{
	int saved = errno;
	void *data;

	if (f->fd < 0) {
		fdry_note(load);
		return;
	}
	data = file_read(f);
	if (data && file_same(f, path)) {
		fdry_note_adopt(load, data, (size_t)f->st.st_size);
		fdry_code_file_add(path);
	} else {
		free(data);
		fdry_note(load);
	}
	close(f->fd);
	errno = saved;
}

static void file_close(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
}

CUresult cuModuleLoad(CUmodule *ret, const char *path)
{
	struct file f;
	CUresult res;

	file_open(path, &f);
	res = fdry_real(cuModuleLoad)(ret, path);
	if (res)
		file_close(&f);
	else
		file_note(&f, path, &(struct fdry_load){ .module = *ret });
	return res;
}

CUresult cuLibraryLoadFromFile(CUlibrary *ret, const char *path, CUjit_option *options,
			       void **values, unsigned int n, CUlibraryOption *lib_options,
			       void **lib_values, unsigned int lib_n)
{
	struct file f;
	CUresult res;

	file_open(path, &f);
	res = fdry_real(cuLibraryLoadFromFile)(ret, path, options, values, n, lib_options,
					       lib_values, lib_n);
	if (res)
		file_close(&f);
	else
		file_note(&f, path,
			  &(struct fdry_load){
				  .library = *ret, .n = n, .options = options, .values = values });
	return res;
}
