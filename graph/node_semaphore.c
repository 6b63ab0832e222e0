// SPDX-License-Identifier: Apache-2.0
/*
 * node_semaphore.c - nodes that signal semaphores of other APIs, or wait for them.
 *
 * A semaphore means nothing in another process. So the program names the semaphores that its graphs
 * use, and a node holds the names with the values of the capture. A loading program says which of
 * its semaphores has each name, and what to add to the values.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "graph/build.h"
#include "graph/name.h"
#include "graph/read.h"
#include "graph/text.h"

/* The semaphores of a node, as the driver has them. */
union params {
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal;
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait;
};

/* --- records --- */

static bool is_semaphore(unsigned int kind)
{
	return kind == FDRY_NODE_SIGNAL || kind == FDRY_NODE_AWAIT;
}

/* The record at *@at of @records, and its name; *@at becomes the next one. False: it is malformed.
 * The name was not checked. */
static bool record_next(struct fdry_span records, size_t *at, struct fdry_graph_semaphore *ret,
			struct fdry_span *name)
{
	const void *p = fdry_span_at(records, *at, sizeof(*ret));
	size_t len, i;

	if (!p)
		return false;
	memcpy(ret, p, sizeof(*ret));
	len = (size_t)fdry_section_padded(ret->name);
	p = fdry_span_at(records, *at + sizeof(*ret), len);
	if (!p)
		return false;
	*name = (struct fdry_span){ p, ret->name };
	for (i = ret->name; i < len; i++)
		if (((const uint8_t *)p)[i])
			return false;
	*at += sizeof(*ret) + len;
	return true;
}

bool fdry_node_semaphore(const struct fdry_node *n, size_t *at, struct fdry_graph_semaphore *ret,
			 struct fdry_span *name)
{
	return record_next(n->semaphores, at, ret, name);
}

static int record_put(struct fdry_buf *records, const struct fdry_graph_semaphore *s,
		      struct fdry_span name)
{
	return fdry_buf_put(records, s, sizeof(*s)) ?:
	       fdry_buf_put(records, name.data, name.len) ?:
	       fdry_buf_align(records, FDRY_SECTION_ALIGN);
}

/* The records of the node at *@at of the column; *@at becomes the next node. */
static bool node_next(struct fdry_span column, size_t *at, struct fdry_span *ret)
{
	const uint8_t *p = fdry_span_at(column, *at, 8);
	uint32_t len;

	if (!p)
		return false;
	len = fdry_get32(p);
	ret->data = fdry_span_at(column, *at + 8, len);
	ret->len = len;
	if (!ret->data || !len || len % FDRY_SECTION_ALIGN || fdry_get32(p + 4))
		return false;
	*at += 8 + (size_t)len;
	return true;
}

/* --- from driver to node --- */

static const char *name_of(const struct fdry_graph_reader *in, CUexternalSemaphore semaphore)
{
	size_t i;

	for (i = 0; i < in->nsemaphores; i++)
		if (in->semaphores[i].semaphore == semaphore)
			return in->semaphores[i].name;
	return NULL;
}

static bool any_set(const unsigned int *p, size_t n)
{
	while (n--)
		if (p[n])
			return true;
	return false;
}

#define ANY_SET(array) any_set(array, sizeof(array) / sizeof((array)[0]))

/* Both kinds of parameters begin alike, but a wait for a mutex has a time. */
static int semaphore_add(struct fdry_read *rd, CUexternalSemaphore semaphore,
			 const union params *p, bool wait)
{
	struct fdry_graph_semaphore s = {
		.value = p->signal.params.fence.value,
		.key = p->signal.params.keyedMutex.key,
		.timeout = wait ? p->wait.params.keyedMutex.timeoutMs : 0,
	};
	const char *name = name_of(rd->in, semaphore);

	if (!name)
		return fdry_fail(FDRY_E_REFUSED,
				 "it uses the semaphore %p, which has no name for other processes; "
				 "name it with fdry_capture_semaphore()", (void *)semaphore);
	if (p->signal.params.nvSciSync.reserved || (wait ? p->wait.flags : p->signal.flags))
		return fdry_fail(FDRY_E_REFUSED,
				 "semaphore '%s' has a fence or a flag of NvSciSync, which belongs "
				 "to this process; use it outside of the graph", name);
	if (wait ? ANY_SET(p->wait.params.reserved) || ANY_SET(p->wait.reserved)
		 : ANY_SET(p->signal.params.reserved) || ANY_SET(p->signal.reserved))
		return fdry_fail(FDRY_E_REFUSED,
				 "semaphore '%s' has parameters that this version does not know; "
				 "use a newer version", name);
	s.name = (uint32_t)strlen(name);
	return record_put(&rd->args, &s,
			  (struct fdry_span){ (const uint8_t *)name, strlen(name) });
}

static int semaphores_add(struct fdry_read *rd, const CUexternalSemaphore *semaphores,
			  const void *params, unsigned int count, bool wait, struct fdry_node *ret)
{
	const uint8_t *at = params;
	union params p;
	unsigned int i;
	int err;

	_Static_assert(sizeof(p.signal) == sizeof(p.wait), "one step leads to the next");
	rd->args.len = 0;
	if (!count)
		return fdry_fail(FDRY_E_REFUSED, "it uses no semaphore; use an empty node");
	for (i = 0; i < count; i++, at += sizeof(p)) {
		memcpy(&p, at, sizeof(p));
		err = semaphore_add(rd, semaphores[i], &p, wait);
		if (err)
			return err;
	}
	ret->semaphores = (struct fdry_span){ rd->args.data, rd->args.len };
	return 0;
}

static int signal_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS p;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(rd->drv, cuGraphExternalSemaphoresSignalNodeGetParams, handle, &p);
	return err ?: semaphores_add(rd, p.extSemArray, p.paramsArray, p.numExtSems, false, ret);
}

static int await_read(struct fdry_read *rd, CUgraphNode handle, struct fdry_node *ret)
{
	CUDA_EXT_SEM_WAIT_NODE_PARAMS p;
	int err;

	memset(&p, 0, sizeof(p));
	err = fdry_call(rd->drv, cuGraphExternalSemaphoresWaitNodeGetParams, handle, &p);
	return err ?: semaphores_add(rd, p.extSemArray, p.paramsArray, p.numExtSems, true, ret);
}

/* --- columns --- */

static int semaphores_put(struct fdry_graph_enc *enc, const struct fdry_node *node)
{
	struct fdry_buf *column = &enc->column[FDRY_GSEC_SEMAPHORE];

	if (column->len + 8 + node->semaphores.len > FDRY_GRAPH_SEMAPHORE_BYTES_MAX)
		return fdry_fail(FDRY_E_LIMIT,
				 "the semaphores of nodes have more than %u bytes in all; use "
				 "shorter names", FDRY_GRAPH_SEMAPHORE_BYTES_MAX);
	return fdry_buf_put_u32(column, (uint32_t)node->semaphores.len) ?:
	       fdry_buf_put_u32(column, 0) ?:
	       fdry_buf_put(column, node->semaphores.data, node->semaphores.len);
}

/* The fault of the records of a node, or NULL. */
static const char *records_fault(struct fdry_span records, bool wait)
{
	struct fdry_graph_semaphore s;
	struct fdry_span name;
	size_t at = 0;

	while (at < records.len) {
		if (!record_next(records, &at, &s, &name))
			return "a semaphore that is malformed";
		if (!fdry_graph_name_ok(name))
			return "a semaphore whose name is no name";
		if (s.timeout && !wait)
			return "a time, but does not wait";
	}
	return NULL;
}

/* One check covers nodes of both kinds. */
static int semaphores_check(const struct fdry_graph_view *v)
{
	struct fdry_span column = { v->section[FDRY_GSEC_SEMAPHORE], v->header.semaphore_bytes };
	bool says = v->header.incompat & FDRY_GRAPH_INCOMPAT_SEMAPHORES;
	struct fdry_span records;
	const char *fault;
	size_t at = 0;
	uint32_t i;

	if (says != (column.len != 0))
		return fdry_fail(FDRY_E_BADIMAGE,
				 "it has %u bytes of semaphores, but its header says otherwise",
				 v->header.semaphore_bytes);
	for (i = 0; column.len && i < v->header.nodes; i++) {
		if (!is_semaphore(v->section[FDRY_GSEC_KIND][i]))
			continue;
		fault = node_next(column, &at, &records)
				? records_fault(records,
						v->section[FDRY_GSEC_KIND][i] == FDRY_NODE_AWAIT)
				: "no semaphores";
		if (fault)
			return fdry_fail(FDRY_E_BADIMAGE, "node %u has %s", i, fault);
	}
	if (at != column.len)
		return fdry_fail(FDRY_E_BADIMAGE, "%zu bytes of semaphores belong to no node",
				 column.len - at);
	return 0;
}

static void semaphores_get(struct fdry_graph_cursor *c, struct fdry_node *ret)
{
	struct fdry_span column = { c->v->section[FDRY_GSEC_SEMAPHORE],
				    c->v->header.semaphore_bytes };
	size_t at = c->next[FDRY_NODE_SIGNAL]; /* a byte; nodes of both kinds share it */

	(void)node_next(column, &at, &ret->semaphores); /* it was checked */
	c->next[FDRY_NODE_SIGNAL] = (uint32_t)at;
}

/* --- from node to driver --- */

static const struct fdry_semaphore *bound(const struct fdry_semaphore *semaphores, size_t n,
					  struct fdry_span name)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (fdry_graph_name_is(name, semaphores[i].name))
			return &semaphores[i];
	return NULL;
}

int fdry_graph_view_check_semaphores(const struct fdry_graph_view *v,
				     const struct fdry_semaphore *semaphores, size_t count)
{
	struct fdry_span column = { v->section[FDRY_GSEC_SEMAPHORE], v->header.semaphore_bytes };
	struct fdry_span records, name;
	struct fdry_graph_semaphore s;
	size_t at = 0, next;

	while (at < column.len && node_next(column, &at, &records))
		for (next = 0; next < records.len && record_next(records, &next, &s, &name);)
			if (!bound(semaphores, count, name))
				return fdry_fail(FDRY_E_NOKEY,
						 "it uses semaphore '%.*s', which the load does "
						 "not name; name it in fdry_load_opts.semaphores",
						 (int)name.len, name.data);
	return 0;
}

/* The memory of a node's semaphores: parameters, then handles. */
struct handles {
	union params *params;
	CUexternalSemaphore *list;
	unsigned int count;
};

static void handle_add(struct handles *h, const struct fdry_graph_semaphore *s,
		       const struct fdry_semaphore *to, bool wait)
{
	union params *p = &h->params[h->count];

	p->signal.params.fence.value = s->value + to->add;
	p->signal.params.keyedMutex.key = s->key;
	if (wait)
		p->wait.params.keyedMutex.timeoutMs = s->timeout;
	h->list[h->count++] = to->semaphore;
}

static int handles_make(const struct fdry_graph_builder *in, const struct fdry_node *node,
			struct handles *ret)
{
	struct fdry_graph_semaphore s;
	struct fdry_span name;
	size_t at = 0, most = node->semaphores.len / sizeof(s);

	ret->count = 0;
	ret->params = calloc(most, sizeof(*ret->params) + sizeof(*ret->list));
	if (!ret->params)
		return fdry_nomem();
	ret->list = (CUexternalSemaphore *)(ret->params + most);
	while (record_next(node->semaphores, &at, &s, &name))
		handle_add(ret, &s, bound(in->semaphores, in->nsemaphores, name),
			   node->kind == FDRY_NODE_AWAIT);
	return 0;
}

static int signal_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS p;
	struct handles h;
	int err = handles_make(b->in, node, &h);

	if (err)
		return err;
	p = (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){ h.list, &h.params->signal, h.count };
	err = fdry_call(b->drv, cuGraphAddExternalSemaphoresSignalNode, ret, b->graph, NULL, 0, &p);
	free(h.params);
	return err;
}

static int await_build(struct fdry_build *b, const struct fdry_node *node, CUgraphNode *ret)
{
	CUDA_EXT_SEM_WAIT_NODE_PARAMS p;
	struct handles h;
	int err = handles_make(b->in, node, &h);

	if (err)
		return err;
	p = (CUDA_EXT_SEM_WAIT_NODE_PARAMS){ h.list, &h.params->wait, h.count };
	err = fdry_call(b->drv, cuGraphAddExternalSemaphoresWaitNode, ret, b->graph, NULL, 0, &p);
	free(h.params);
	return err;
}

int fdry_build_semaphores_keep(struct fdry_build *b, const CUgraphNode *nodes)
{
	const struct fdry_graph_header *h = &b->view->header;
	const uint8_t *kinds = b->view->section[FDRY_GSEC_KIND];
	struct fdry_graph_built *to = b->built;
	uint32_t i;

	if (!h->semaphore_bytes)
		return 0;
	to->semaphores = calloc(h->nodes, sizeof(*nodes));
	if (!to->semaphores)
		return fdry_nomem();
	for (i = 0; i < h->nodes; i++)
		if (is_semaphore(kinds[i]))
			to->semaphores[to->nsemaphores++] = nodes[i];
	return 0;
}

static int signal_set(const struct fdry_driver *drv, CUgraphExec exec, CUgraphNode node,
		      const struct handles *h)
{
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS p = { h->list, &h->params->signal, h->count };

	if (!exec)
		return fdry_call(drv, cuGraphExternalSemaphoresSignalNodeSetParams, node, &p);
	return fdry_call(drv, cuGraphExecExternalSemaphoresSignalNodeSetParams, exec, node, &p);
}

static int await_set(const struct fdry_driver *drv, CUgraphExec exec, CUgraphNode node,
		     const struct handles *h)
{
	CUDA_EXT_SEM_WAIT_NODE_PARAMS p = { h->list, &h->params->wait, h->count };

	if (!exec)
		return fdry_call(drv, cuGraphExternalSemaphoresWaitNodeSetParams, node, &p);
	return fdry_call(drv, cuGraphExecExternalSemaphoresWaitNodeSetParams, exec, node, &p);
}

int fdry_graph_semaphores_set(const struct fdry_graph_builder *in,
			      const struct fdry_graph_view *view,
			      const struct fdry_graph_built *built, CUgraphExec exec)
{
	struct fdry_graph_cursor c = { .v = view };
	struct fdry_node node = { 0 };
	struct handles h;
	uint32_t i, n = 0;
	int err = 0;

	for (i = 0; n < built->nsemaphores && i < view->header.nodes; i++) {
		node.kind = view->section[FDRY_GSEC_KIND][i];
		if (!is_semaphore(node.kind))
			continue;
		semaphores_get(&c, &node);
		err = handles_make(in, &node, &h);
		if (err)
			return err;
		err = (node.kind == FDRY_NODE_SIGNAL ? signal_set : await_set)(
			in->drv, exec, built->semaphores[n++], &h);
		free(h.params);
		if (err)
			return fdry_fail_at(err, "node %u", i);
	}
	return 0;
}

/* --- text --- */

/* NAME VALUE KEY TIME for each. */
static int semaphores_to_text(const struct fdry_node *node, struct fdry_buf *ret)
{
	struct fdry_graph_semaphore s;
	struct fdry_span name;
	size_t at = 0;
	int err = 0;

	while (!err && record_next(node->semaphores, &at, &s, &name))
		err = fdry_buf_printf(ret, " %.*s %" PRIu64 " %" PRIu64 " %u", (int)name.len,
				      name.data, s.value, s.key, s.timeout);
	return err;
}

static int semaphore_from_text(struct fdry_text *t, struct fdry_span name)
{
	struct fdry_graph_semaphore s = { .name = (uint32_t)name.len };
	int err = fdry_word_u64(&t->w, "the value", UINT64_MAX, &s.value) ?:
		  fdry_word_u64(&t->w, "the key", UINT64_MAX, &s.key) ?:
		  fdry_word_u32(&t->w, "the time", &s.timeout);

	return err ?: record_put(&t->args, &s, name);
}

static int semaphores_from_text(struct fdry_text *t, struct fdry_node *ret)
{
	struct fdry_span name;
	int err;

	t->args.len = 0;
	while (fdry_word(&t->w, &name)) {
		err = semaphore_from_text(t, name);
		if (err)
			return err;
	}
	ret->semaphores = (struct fdry_span){ t->args.data, t->args.len };
	return t->args.len ? 0
			   : fdry_fail(FDRY_E_INVAL,
				       "the line ends where a semaphore should stand");
}

const struct fdry_node_ops fdry_node_signal_ops = {
	.name = "signal",
	.read = signal_read,
	.put = semaphores_put,
	.check = semaphores_check,
	.get = semaphores_get,
	.build = signal_build,
	.to_text = semaphores_to_text,
	.from_text = semaphores_from_text,
};

const struct fdry_node_ops fdry_node_await_ops = {
	.name = "await",
	.read = await_read,
	.put = semaphores_put,
	.get = semaphores_get,
	.build = await_build,
	.to_text = semaphores_to_text,
	.from_text = semaphores_from_text,
};
