// SPDX-License-Identifier: Apache-2.0
/* select.c - selects one of the images under a name; see select.h. */
#include "image/select.h"

#include <stdlib.h>

#include "lib/log.h"
#include "lib/threads.h"

#define SAID_MAX 8 /* the most images that an error names */

static struct fdry_candidate *list(const struct fdry_candidates *p)
{
	return (struct fdry_candidate *)p->list.data;
}

size_t fdry_candidates_count(const struct fdry_candidates *p)
{
	return p->list.len / sizeof(struct fdry_candidate);
}

/* --- reading --- */

/* Note that the manifest is damaged in the store: @err. */
static int damage_note(struct fdry_candidates *p, const struct fdry_oid *id, int err)
{
	struct fdry_saved_err saved;

	fdry_saved_err_set(&saved, err);
	if (fdry_buf_put(&p->damaged, id, sizeof(*id)))
		fdry_debug("a damaged manifest is not noted: %s", fdry_last_error());
	return fdry_saved_err_restore(&saved);
}

static int candidate_read(struct fdry_reader *reader, const struct fdry_oid *id,
			  struct fdry_candidates *p, struct fdry_candidate *ret)
{
	struct fdry_candidate c = { .id = *id };
	int err = fdry_reader_copy(reader, id, &c.bytes);

	if (err == -FDRY_E_CORRUPT)
		err = damage_note(p, id, err);
	if (err)
		return err;
	err = fdry_manifest_init((struct fdry_span){ c.bytes.data, c.bytes.len }, &c.m);
	if (err)
		goto out_release;
	*ret = c;
	return 0;
out_release:
	fdry_buf_release(&c.bytes);
	return err;
}

/* Leave out an image that cannot be read if the name has others. */
static int candidate_skip(struct fdry_candidates *p, const struct fdry_ref *ref, int err)
{
	char hex[FDRY_OID_HEX_SIZE];

	if (p->found == 1 || err == -FDRY_E_NOMEM)
		return err;
	fdry_warn("one of the images named '%s' cannot be read: %s", p->name, fdry_last_error());
	if (!p->broken)
		p->broken = err;
	return fdry_buf_printf(&p->why, "; %.12s cannot be read (%s)", fdry_oid_hex(&ref->oid, hex),
			       fdry_error_meaning(err));
}

static int candidate_add(struct fdry_reader *reader, const struct fdry_ref *ref,
			 struct fdry_candidates *p)
{
	struct fdry_candidate c;
	int err = candidate_read(reader, &ref->oid, p, &c);

	if (err)
		return candidate_skip(p, ref, err);
	err = fdry_buf_put(&p->list, &c, sizeof(c));
	if (err)
		fdry_buf_release(&c.bytes);
	return err;
}

int fdry_candidates_read(struct fdry_reader *reader, const char *name, struct fdry_candidates *ret)
{
	struct fdry_candidates p = { .name = name };
	struct fdry_ref *refs = NULL;
	size_t i;
	int err = fdry_reader_images(reader, name, &refs, &p.found);

	if (err)
		return err;
	for (i = 0; i < p.found; i++) {
		err = candidate_add(reader, &refs[i], &p);
		if (err)
			goto out_release;
	}
	if (!fdry_candidates_count(&p)) {
		err = fdry_fail((enum fdry_errcode) - p.broken,
				"none of %zu images can be read%s; see foundry-store verify",
				p.found, p.why.data);
		goto out_release;
	}
	*ret = p;
	goto out_free;
out_release:
	ret->damaged = p.damaged;
	p.damaged = (struct fdry_buf){ 0 };
	fdry_candidates_release(&p);
out_free:
	free(refs);
	return err;
}

/* --- comparing --- */

static int why_add(struct fdry_candidates *p, const struct fdry_candidate *c,
		   const struct fdry_mismatch *mm, size_t nr)
{
	char hex[FDRY_OID_HEX_SIZE];

	if (nr > SAID_MAX)
		return 0;
	if (nr == SAID_MAX)
		return fdry_buf_printf(&p->why, "; and others");
	return fdry_buf_printf(&p->why, "; %.12s has %.64s '%.40s' ('%.40s' here)",
			       fdry_oid_hex(&c->id, hex), mm->field, mm->found, mm->wanted);
}

static int none_fits(struct fdry_candidates *p)
{
	if (p->broken)
		return fdry_fail((enum fdry_errcode) - p->broken,
				 "none of %zu images can be used%s; see foundry-store verify",
				 p->found, p->why.data);
	return fdry_fail(FDRY_E_IDENTITY,
			 "none of %zu images was made for this%s; seal one for this", p->found,
			 p->why.data);
}

/* Move the images that fit to the front. @left: gets their number. @first: gets what differs in the
 * first of the others. */
static int candidates_sort(struct fdry_candidates *p, const struct fdry_wanted *w, size_t *left,
			   struct fdry_mismatch *first)
{
	size_t i, out = 0, n = fdry_candidates_count(p);
	struct fdry_candidate *c = list(p), swap;
	struct fdry_mismatch mm;
	int err;

	for (i = 0; i < n; i++) {
		mm.field[0] = '\0';
		err = fdry_identity_compare(&c[i].m, w->here, w->facts, w->nfacts, &mm);
		if (!err) {
			swap = c[*left];
			c[(*left)++] = c[i];
			c[i] = swap;
			continue;
		}
		if (err != -FDRY_E_IDENTITY)
			return err;
		if (!out)
			*first = mm;
		err = why_add(p, &c[i], &mm, out++);
		if (err)
			return err;
	}
	return 0;
}

/* A single image is not filtered: the caller compares it, and names what differs. */
int fdry_candidates_filter(struct fdry_candidates *p, const struct fdry_wanted *w,
			   struct fdry_mismatch *ret)
{
	struct fdry_mismatch first = { .field = "" };
	size_t left = 0, n = fdry_candidates_count(p);
	int err;

	if (p->found == 1)
		return 0;
	err = candidates_sort(p, w, &left, &first);
	if (err)
		return err;
	while (n > left)
		fdry_buf_release(&list(p)[--n].bytes);
	p->list.len = left * sizeof(struct fdry_candidate);
	if (left)
		return 0;
	if (ret)
		*ret = first;
	return none_fits(p);
}

/* --- selecting --- */

struct fdry_candidate fdry_candidates_select(struct fdry_candidates *p)
{
	struct fdry_candidate selected = list(p)[0];

	memset(&list(p)[0].bytes, 0, sizeof(selected.bytes));
	return selected;
}

void fdry_candidates_release(struct fdry_candidates *p)
{
	size_t i;

	for (i = 0; i < fdry_candidates_count(p); i++)
		fdry_buf_release(&list(p)[i].bytes);
	fdry_buf_release(&p->list);
	fdry_buf_release(&p->why);
	fdry_buf_release(&p->damaged);
}

int fdry_select_image(struct fdry_reader *reader, const char *name, const struct fdry_wanted *w,
		      struct fdry_candidate *ret)
{
	struct fdry_candidates p = { .name = name };
	int err = fdry_candidates_read(reader, name, &p) ?: fdry_candidates_filter(&p, w, NULL);

	if (!err)
		*ret = fdry_candidates_select(&p);
	fdry_candidates_release(&p);
	return err;
}
