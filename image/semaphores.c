// SPDX-License-Identifier: Apache-2.0
/* semaphores.c - see semaphores.h. */
#include "image/semaphores.h"

#include <stdlib.h>
#include <string.h>

#include "image/exec.h"
#include "image/tensor.h"
#include "lib/opts.h"
#include "lib/threads.h"

static struct fdry_semaphore *find(const struct fdry_buf *list, const char *name)
{
	struct fdry_semaphore *s = fdry_array(*list, struct fdry_semaphore);
	size_t i, n = fdry_array_count(*list, struct fdry_semaphore);

	for (i = 0; i < n; i++)
		if (!strcmp(s[i].name, name))
			return &s[i];
	return NULL;
}

int fdry_semaphores_add(struct fdry_buf *list, const struct fdry_semaphore *s)
{
	struct fdry_semaphore add = *s;
	int err = fdry_name_check("semaphore", s->name);

	if (err)
		return err;
	if (!s->semaphore)
		return fdry_fail(FDRY_E_INVAL,
				 "semaphore '%s' is NULL; pass what cuImportExternalSemaphore() "
				 "returned", s->name);
	if (find(list, s->name))
		return fdry_fail(FDRY_E_EXISTS, "the semaphore '%s' was named before", s->name);
	add.name = strdup(s->name);
	err = add.name ? fdry_buf_put(list, &add, sizeof(add)) : fdry_nomem();
	if (err)
		free((char *)add.name);
	return err;
}

int fdry_semaphores_take(struct fdry_buf *list, const struct fdry_load_opts *o)
{
	size_t i;
	int err = 0;

	for (i = 0; !err && i < o->nsemaphores; i++)
		err = fdry_semaphores_add(list, &o->semaphores[i]);
	return err;
}

void fdry_semaphores_release(struct fdry_buf *list)
{
	size_t i;

	for (i = 0; i < fdry_array_count(*list, struct fdry_semaphore); i++)
		free((char *)fdry_array(*list, struct fdry_semaphore)[i].name);
	fdry_buf_release(list);
}

int fdry_image_semaphore_add(struct fdry_image *img, const char *name, uint64_t add)
{
	struct fdry_saved_err first = { 0 };
	struct fdry_semaphore *s;
	CUstreamCaptureMode mode;
	uint32_t i;
	int err = fdry_image_usable(img) ?: fdry_need(name) ?: fdry_image_check_outside(img);

	if (err)
		return err;
	s = find(&img->semaphores, name);
	if (!s)
		return fdry_fail(FDRY_E_NOKEY,
				 "the load named no semaphore '%s'; name it in "
				 "fdry_load_opts.semaphores", name);
	err = fdry_image_enter(img, &mode);
	if (err)
		return err;
	fdry_ticket_take(&img->ticket);
	s->add = add;
	/* All graphs, since launches must not mix values. */
	for (i = 0; i < img->m.n_graphs; i++) {
		err = fdry_exec_semaphores_set(img, i);
		if (err && !first.err)
			fdry_saved_err_set(&first, err);
	}
	fdry_ticket_return(&img->ticket);
	fdry_image_leave(img, &mode);
	return fdry_saved_err_restore(&first);
}
