// SPDX-License-Identifier: Apache-2.0
/*
 * targets.c - see targets.h.
 *
 * Fingerprints are those of the bytes in the store, which have zeros in place of the pointers. So
 * the pointers in content are written after content was compared.
 */
#include "image/targets.h"

#include <stdlib.h>

#include "arch/stream.h"
#include "image/place.h"
#include "lib/fork_lock.h"

/* The images in regions of captures that have pointers in content. Such images may share memory,
 * but each has variables of its own. */
static struct fdry_image *pointing;

static bool places_shared(const struct fdry_manifest *a, const struct fdry_manifest *b)
{
	const struct fdry_mf_content_pointer *p = a->content_pointers, *q = b->content_pointers;
	uint32_t i = 0, k = 0;

	while (i < a->n_content_pointers && k < b->n_content_pointers) {
		if (p[i].addr == q[k].addr)
			return true;
		if (p[i].addr < q[k].addr)
			i++;
		else
			k++;
	}
	return false;
}

static int pointing_add(struct fdry_image *img)
{
	const struct fdry_image *other;

	if (!img->place_hook || !img->m.n_content_pointers)
		return 0;
	fdry_fork_lock(FDRY_LOCK_GRAPHS);
	for (other = pointing; other; other = other->next_pointing)
		if (other->pid == img->pid && places_shared(&other->m, &img->m))
			break;
	if (!other) {
		img->next_pointing = pointing;
		pointing = img;
	}
	fdry_fork_unlock(FDRY_LOCK_GRAPHS);
	return other ? fdry_fail(FDRY_E_TAKEN,
				 "its content has pointers to module variables at the addresses "
				 "of image '%.100s', which has variables of its own; unload that "
				 "image first",
				 other->name)
		     : 0;
}

static void pointing_remove(const struct fdry_image *img)
{
	struct fdry_image **p;

	fdry_fork_lock(FDRY_LOCK_GRAPHS);
	for (p = &pointing; *p && *p != img; p = &(*p)->next_pointing)
		;
	if (*p)
		*p = img->next_pointing;
	fdry_fork_unlock(FDRY_LOCK_GRAPHS);
}

static int addresses_find(struct fdry_image *img)
{
	const struct fdry_mf_target *t = img->m.targets;
	uint32_t i;
	int err = 0;

	img->targets = calloc(img->m.n_targets, sizeof(*img->targets));
	if (!img->targets)
		return fdry_nomem();
	for (i = 0; i < img->m.n_targets && !err; i++, t++)
		err = fdry_kernel_bank_variable(img->bank, &img->m.objects[t->object].oid,
						fdry_manifest_str(&img->m, t->name), t->size,
						&img->targets[i]);
	return err;
}

static int words_list(struct fdry_image *img)
{
	const struct fdry_mf_arg_pointer *p = img->m.arg_pointers;
	struct fdry_image_exec *x;
	uint32_t i;

	if (!img->m.n_arg_pointers)
		return 0;
	img->words = calloc(img->m.n_arg_pointers, sizeof(*img->words));
	if (!img->words)
		return fdry_nomem();
	for (i = 0; i < img->m.n_arg_pointers; i++, p++) {
		img->words[i] = (struct fdry_graph_word){ p->node, p->at,
							  img->targets[p->target] + p->offset };
		x = &img->execs[p->graph];
		if (!x->nwords++)
			x->words = &img->words[i];
	}
	return 0;
}

int fdry_image_targets_find(struct fdry_image *img)
{
	if (!img->m.n_targets)
		return 0;
	return pointing_add(img) ?: addresses_find(img) ?: words_list(img);
}

void fdry_image_targets_values(struct fdry_image *img)
{
	const struct fdry_mf_value_pointer *p = img->m.value_pointers;
	uint32_t i;

	for (i = 0; i < img->m.n_value_pointers; i++, p++)
		fdry_set64(img->values[p->variable].data +
				   (p->at - img->m.variables[p->variable].offset),
			   img->targets[p->target] + p->offset);
}

/* A pointer in content, and the image that it belongs to. */
struct content_word {
	struct fdry_image *img;
	uint64_t addr;
	uint8_t bytes[8];
};

/* Write the part of the pointer that does not lie in memory which the process keeps. */
static int piece_write(void *arg, uint64_t addr, uint64_t size)
{
	const struct content_word *w = arg;

	return fdry_call(w->img->drv, cuMemcpyHtoDAsync_v2, addr, w->bytes + (addr - w->addr), size,
			 w->img->stream);
}

int fdry_image_targets_content(struct fdry_image *img)
{
	const struct fdry_mf_content_pointer *p = img->m.content_pointers;
	uint32_t i, n = img->m.n_content_pointers;
	struct content_word *w;
	int err = 0, waited;

	if (!n)
		return 0;
	w = calloc(n, sizeof(*w));
	if (!w)
		return fdry_nomem();
	for (i = 0; i < n && !err; i++, p++) {
		w[i].img = img;
		w[i].addr = p->addr;
		fdry_set64(w[i].bytes, img->targets[p->target] + p->offset);
		err = fdry_placement_pieces(img, p->addr, 8, piece_write, &w[i]);
	}
	waited = fdry_stream_wait(img->drv, img->stream);
	free(w);
	return waited ? waited : err;
}

void fdry_image_targets_free(struct fdry_image *img)
{
	pointing_remove(img);
	free(img->targets);
	free(img->words);
}
