// SPDX-License-Identifier: Apache-2.0
/* image_json.c - describes an image as JSON. */
#include "api/cmd/cmd.h"
#include "api/cmd/image.h"
#include "image/array_pieces.h"
#include "mm/region.h"

static void facts(struct json *j, const struct fdry_manifest *m)
{
	uint32_t i;

	json_open(j, "facts", '{');
	for (i = 0; i < m->n_facts; i++)
		json_string(j, fdry_manifest_str(m, m->facts[i].key),
			    fdry_manifest_str(m, m->facts[i].value));
	json_close(j, '}');
	json_open(j, "limits", '[');
	for (i = 0; i < m->n_limits; i++) {
		json_open(j, NULL, '{');
		json_number(j, "limit", m->limits[i].limit);
		json_number(j, "at_least", m->limits[i].value);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void segments(struct json *j, const struct fdry_manifest *m)
{
	uint64_t bytes[FDRY_ROLE_EXTERNAL + 1] = { 0 }, chunks = 0;
	uint32_t i;

	json_open(j, "segments", '[');
	for (i = 0; i < m->n_segments; i++) {
		json_open(j, NULL, '{');
		json_number(j, "address", m->segments[i].addr);
		json_number(j, "bytes", m->segments[i].size);
		json_string(j, "role", cmd_role_name(m->segments[i].role));
		json_close(j, '}');
		bytes[m->segments[i].role] += m->segments[i].size;
	}
	json_close(j, ']');
	for (i = 0; i < m->n_chunks; i++)
		chunks += m->chunks[i].size;
	json_open(j, "memory", '{');
	for (i = 0; i <= FDRY_ROLE_EXTERNAL; i++)
		json_number(j, cmd_role_name(i), bytes[i]);
	json_number(j, "chunks", m->n_chunks);
	json_number(j, "chunk_bytes", chunks);
	json_close(j, '}');
	json_open(j, "host_segments", '[');
	for (i = 0; i < m->n_hosts; i++)
		json_number(j, NULL, m->hosts[i].size);
	json_close(j, ']');
	json_open(j, "pinned", '[');
	for (i = 0; i < m->n_pinned; i++) {
		json_open(j, NULL, '{');
		json_number(j, "address", m->pinned[i].addr);
		json_number(j, "bytes", m->pinned[i].size);
		json_bool(j, "registered", m->pinned[i].kind == FDRY_MF_PINNED_REGISTERED);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void array_shape(struct json *j, const struct fdry_mf_array *a)
{
	json_number(j, "width", a->width);
	json_number(j, "height", a->height);
	json_number(j, "depth", a->depth);
	json_number(j, "format", a->format);
	json_number(j, "channels", a->channels);
	json_number(j, "flags", a->flags);
}

static void arrays(struct json *j, const struct fdry_manifest *m)
{
	const struct fdry_mf_mipmap_level *l;
	uint32_t i;

	json_open(j, "arrays", '[');
	for (i = 0; i < m->n_arrays; i++) {
		l = fdry_manifest_level(m, i);
		json_open(j, NULL, '{');
		array_shape(j, &m->arrays[i]);
		if (l) {
			json_number(j, "mipmap", l->mipmap);
			json_number(j, "level", l->level);
		}
		json_close(j, '}');
	}
	json_close(j, ']');
	json_open(j, "mipmaps", '[');
	for (i = 0; i < m->n_mipmaps; i++) {
		json_open(j, NULL, '{');
		array_shape(j, &m->mipmaps[i].top);
		json_number(j, "levels", m->mipmaps[i].levels);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void numbers(struct json *j, const char *key, const int64_t *n, uint32_t count)
{
	uint32_t i;

	json_open(j, key, '[');
	for (i = 0; i < count; i++)
		json_number(j, NULL, (uint64_t)n[i]); /* never negative */
	json_close(j, ']');
}

static void tensor(struct json *j, const struct fdry_manifest *m, uint32_t i)
{
	const struct fdry_mf_tensor *t = &m->tensors[i];
	bool host = t->flags & FDRY_TENSOR_HOST;

	json_open(j, NULL, '{');
	json_string(j, "name", fdry_manifest_str(m, t->name));
	json_string(j, "dtype", cmd_dtype_name(t->dtype));
	json_string(j, "use", cmd_use_name(t->use));
	json_bool(j, "external", t->flags & FDRY_TENSOR_EXTERNAL);
	json_bool(j, "host", host);
	if (host)
		json_number(j, "host_segment", fdry_host_segment(t->addr));
	json_number(j, host ? "host_offset" : "address",
		    host ? fdry_host_offset(t->addr) : t->addr);
	numbers(j, "shape", t->shape, t->rank);
	numbers(j, "strides", t->stride, t->rank);
	if (cmd_capacity_of(m, i))
		json_number(j, "capacity", cmd_capacity_of(m, i));
	json_close(j, '}');
}

static void graphs(struct json *j, const struct fdry_manifest *m)
{
	uint32_t i;

	json_open(j, "graphs", '[');
	for (i = 0; i < m->n_graphs; i++) {
		json_open(j, NULL, '{');
		json_number(j, "key", m->graphs[i].key);
		json_string(j, "name", fdry_manifest_str(m, m->graphs[i].name));
		json_number(j, "nodes", m->graphs[i].nodes);
		json_oid(j, "id", &m->graphs[i].oid);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void rng_uses(struct json *j, const struct fdry_manifest *m)
{
	const struct fdry_mf_rng_use *d = m->rng_uses;
	uint32_t i;

	json_open(j, "draws", '[');
	for (i = 0; i < m->n_rng_uses; i++, d++) {
		json_open(j, NULL, '{');
		json_number(j, "graph", m->graphs[d->graph].key);
		json_string(j, "generator", fdry_manifest_str(m, m->generators[d->generator].name));
		json_number(j, "seed_address", d->seed);
		json_number(j, "offset_address", d->offset);
		json_number(j, "increment", d->increment);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void events(struct json *j, const struct fdry_manifest *m)
{
	const struct fdry_mf_event *e = m->events;
	uint32_t i;

	json_open(j, "shared_events", '[');
	for (i = 0; i < m->n_events; i++, e++) {
		json_open(j, NULL, '{');
		json_number(j, "graph", m->graphs[e->graph].key);
		json_number(j, "event", e->event);
		json_number(j, "number", e->number);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void variables(struct json *j, const struct fdry_manifest *m)
{
	const struct fdry_mf_variable *v = m->variables;
	uint32_t i;

	json_open(j, "variables", '[');
	for (i = 0; i < m->n_variables; i++, v++) {
		json_open(j, NULL, '{');
		json_string(j, "name", fdry_manifest_str(m, v->name));
		json_oid(j, "object", &m->objects[v->object].oid);
		json_number(j, "offset", v->offset);
		json_number(j, "bytes", v->size);
		json_oid(j, "id", &v->oid);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void files(struct json *j, const struct fdry_manifest *m)
{
	const struct fdry_mf_file *f = m->files;
	uint32_t i;

	json_open(j, "files", '[');
	for (i = 0; i < m->n_files; i++, f++) {
		json_open(j, NULL, '{');
		json_string(j, "name", fdry_manifest_str(m, f->name));
		json_bool(j, "executable", f->flags & FDRY_FILE_EXECUTABLE);
		json_number(j, "offset", f->offset);
		json_number(j, "bytes", f->size);
		if (f->size)
			json_oid(j, "id", &f->oid);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void kernels(struct json *j, const struct fdry_manifest *m)
{
	const struct fdry_mf_kernel *k;
	uint32_t i;

	json_open(j, "kernels", '[');
	for (i = 0; i < m->n_kernels; i++) {
		k = &m->kernels[i];
		json_open(j, NULL, '{');
		json_string(j, "name", fdry_manifest_str(m, k->name));
		json_oid(j, "id", &m->objects[k->object].oid);
		json_number(j, "parameter_bytes", k->param_bytes);
		json_bool(j, "sliced", !k->whole_reason);
		if (k->whole_reason)
			json_string(j, "whole_because", fdry_manifest_str(m, k->whole_reason));
		json_close(j, '}');
	}
	json_close(j, ']');
}

void cmd_image_json(struct json *j, const struct fdry_manifest *m)
{
	uint32_t i;

	json_open(j, "image", '{');
	json_number(j, "base", m->header->base);
	json_number(j, "end", m->header->end);
	facts(j, m);
	segments(j, m);
	arrays(j, m);
	json_open(j, "tensors", '[');
	for (i = 0; i < m->n_tensors; i++)
		tensor(j, m, i);
	json_close(j, ']');
	graphs(j, m);
	rng_uses(j, m);
	kernels(j, m);
	events(j, m);
	variables(j, m);
	files(j, m);
	json_close(j, '}');
}
