// SPDX-License-Identifier: Apache-2.0
/* manifest_check_pointers.c - checks the pointers to module variables of a manifest, after its
 * strings, objects, graphs, segments and variables. */
#include <string.h>

#include "graph/kernel.h"
#include "image/manifest_check.h"
#include "mm/region.h"

#define bad fdry_manifest_bad

static int targets_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_target *t = m->targets;
	uint32_t i;

	for (i = 0; i < m->n_targets; i++, t++) {
		if (t->object >= m->n_objects || !fdry_manifest_str_ok(m, t->name) ||
		    !*fdry_manifest_str(m, t->name) || !t->size || t->size > FDRY_HOST_PLACE)
			return bad("pointed variable %u has no object, name or size", i);
		if (i && (t[-1].object > t->object ||
			  (t[-1].object == t->object &&
			   strcmp(fdry_manifest_str(m, t[-1].name),
				  fdry_manifest_str(m, t->name)) >= 0)))
			return bad("pointed variable %u is out of order", i);
	}
	return 0;
}

static bool target_ok(const struct fdry_manifest *m, uint32_t target, uint64_t offset)
{
	return target < m->n_targets && offset < m->targets[target].size;
}

static int arg_pointers_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_arg_pointer *p = m->arg_pointers;
	uint32_t i;

	for (i = 0; i < m->n_arg_pointers; i++, p++) {
		if (p->graph >= m->n_graphs || p->node >= m->graphs[p->graph].nodes ||
		    p->at > FDRY_KERNEL_PARAM_BYTES_MAX - 8 || !target_ok(m, p->target, p->offset))
			return bad("pointer %u in arguments has no place or no variable", i);
		if (i && (p[-1].graph > p->graph ||
			  (p[-1].graph == p->graph &&
			   (p[-1].node > p->node ||
			    (p[-1].node == p->node && p[-1].at + 8 > p->at)))))
			return bad("pointer %u in arguments is out of order", i);
	}
	return 0;
}

static int value_pointers_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_value_pointer *p = m->value_pointers;
	const struct fdry_mf_variable *v;
	uint32_t i;

	for (i = 0; i < m->n_value_pointers; i++, p++) {
		if (p->variable >= m->n_variables || !target_ok(m, p->target, p->offset))
			return bad("pointer %u in values names no variable", i);
		v = &m->variables[p->variable];
		if (p->at < v->offset || v->size < 8 || p->at - v->offset > v->size - 8)
			return bad("pointer %u does not lie in its value", i);
		if (i && (p[-1].variable > p->variable ||
			  (p[-1].variable == p->variable && p[-1].at + 8 > p->at)))
			return bad("pointer %u in values is out of order", i);
	}
	return 0;
}

static int content_pointers_check(const struct fdry_manifest *m)
{
	const struct fdry_mf_content_pointer *p = m->content_pointers;
	uint32_t i, k;

	for (i = 0; i < m->n_content_pointers; i++, p++) {
		if (!target_ok(m, p->target, p->offset) || p->reserved || p->addr % 8 ||
		    (i && p[-1].addr >= p->addr))
			return bad("pointer %u in content has no variable, or is out of order", i);
		k = fdry_manifest_segment(m, p->addr);
		if (k == m->n_segments || m->segments[k].role != FDRY_ROLE_CONTENT ||
		    p->addr < m->segments[k].addr || m->segments[k].size < 8 ||
		    p->addr - m->segments[k].addr > m->segments[k].size - 8)
			return bad("pointer %u does not lie in content", i);
	}
	return 0;
}

int fdry_manifest_check_pointers(const struct fdry_manifest *m)
{
	return targets_check(m) ?: arg_pointers_check(m) ?: value_pointers_check(m) ?:
	       content_pointers_check(m);
}
