// SPDX-License-Identifier: Apache-2.0
/* objects.c - reads kernel and graph objects with several threads; see objects.h. */
#include "image/objects.h"

#include <stdlib.h>
#include <string.h>

#include "graph/module_table.h"
#include "image/damage.h"
#include "image/readers.h"
#include "lib/clock.h"
#include "lib/search.h"

/* More threads do not help: they wait for memory and for each other. */
#define THREADS_MAX 8
/* A further thread is useful for this many objects: each takes a fraction of a millisecond. */
#define OBJECTS_A_THREAD 4

/* One task of reading an object. The tasks of kernel objects come first, by position in the
 * manifest, then those of graphs in the order of img->order. */
struct reading {
	struct fdry_work work;
	struct fdry_objects *o;
};

struct fdry_objects {
	struct fdry_image *img;
	struct fdry_readers readers;
	struct reading *readings;
	size_t count;          /* of tasks in the queue */
	unsigned int threads;  /* the number that were started */
	struct fdry_buf *code; /* kernel objects, by position in m.objects */
	bool *loaded; /* by the same position: another image has loaded it, so it is read only if
			 that was in another context */
	uint32_t *by_id;       /* these positions, sorted by id */
	uint32_t *first;       /* for each graph, the first graph with the same object, which is
				  read for all */
	pthread_mutex_t lock;  /* guards the fields below */
	uint64_t bytes;        /* read so far */
	size_t ndone;          /* tasks that are done */
	double cpu_ms;         /* processor time of all threads */
	double start_ms, done_ms;
};

/* --- the kernel table --- */

static int kernel_table(struct fdry_image *img)
{
	uint32_t i;

	img->kernels = calloc(img->m.n_kernels ? img->m.n_kernels : 1, sizeof(*img->kernels));
	if (!img->kernels)
		return fdry_nomem();
	for (i = 0; i < img->m.n_kernels; i++) {
		const struct fdry_mf_kernel *k = &img->m.kernels[i];

		img->kernels[i] = (struct fdry_kernel){
			.name = fdry_manifest_str(&img->m, k->name),
			.object = img->m.objects[k->object].oid,
			.nparams = k->param_count,
			.param_bytes = k->param_bytes,
			.params = k->param_count ? (const struct fdry_param *)(img->m.params +
									       k->param_first)
						 : NULL,
			.whole = k->whole_reason != 0,
			.whole_reason = k->whole_reason
						? fdry_manifest_str(&img->m, k->whole_reason)
						: NULL,
		};
		memcpy(img->kernels[i].attrs, k->attrs, FDRY_MF_KERNEL_ATTRS * sizeof(k->attrs[0]));
	}
	for (i = 0; i < img->m.n_kernels; i++)
		img->kernels[i].has_values =
			fdry_manifest_has_values(&img->m, img->m.kernels[i].object);
	for (i = 0; i < img->m.n_attrs; i++)
		img->kernels[img->m.attrs[i].kernel].attrs[img->m.attrs[i].id] =
			img->m.attrs[i].value;
	return 0;
}

/* --- the order of graphs --- */

static int order_named(struct fdry_image *img, const struct fdry_objects_opts *opts, bool *taken,
		       uint32_t *count)
{
	const struct fdry_mf_graph *g;
	size_t i;

	for (i = 0; i < opts->norder; i++) {
		g = fdry_manifest_graph(&img->m, opts->order[i]);
		if (!g)
			return fdry_fail(
				FDRY_E_NOKEY,
				"the order names graph %llu, which is not in the image; "
				"fdry_image_describe() lists them",
				(unsigned long long)opts->order[i]);
		if (taken[g - img->m.graphs])
			return fdry_fail(FDRY_E_EXISTS,
					 "the order names graph %llu twice; name each once",
					 (unsigned long long)opts->order[i]);
		taken[g - img->m.graphs] = true;
		img->order[(*count)++] = (uint32_t)(g - img->m.graphs);
	}
	return 0;
}

/* Put the graphs that the caller names first, then the others in the order of the manifest. */
static int order_make(struct fdry_image *img, const struct fdry_objects_opts *opts)
{
	uint32_t i, count = 0, n = img->m.n_graphs;
	bool *taken = calloc(n + 1, sizeof(*taken));
	int err;

	img->order = calloc(n + 1, sizeof(*img->order));
	if (!img->order || !taken) {
		free(taken);
		return fdry_nomem();
	}
	err = order_named(img, opts, taken, &count);
	if (err)
		goto out_free;
	for (i = 0; i < n; i++)
		if (!taken[i])
			img->order[count++] = i;
out_free:
	free(taken);
	return err;
}

/* --- reading --- */

/* Copy an object out of the store. Its size counts against the limit before memory is allocated,
 * since a few stored bytes may be very large uncompressed. */
static int object_get(struct fdry_objects *o, struct fdry_reader *reader,
		      const struct fdry_oid *oid, struct fdry_buf *ret)
{
	uint64_t size;
	int err = fdry_reader_size(reader, oid, &size);

	if (err)
		return err;
	err = fdry_budget_take(&o->img->budget, size, "kernels and graphs");
	if (err)
		return err;
	err = fdry_damage_noted(o->img, oid, fdry_reader_copy(reader, oid, ret));
	if (err)
		return err;
	pthread_mutex_lock(&o->lock);
	o->bytes += ret->len;
	pthread_mutex_unlock(&o->lock);
	return 0;
}

static int nodes_check(const struct fdry_image *img, uint32_t i)
{
	const struct fdry_graph_view *v = &img->execs[i].view;

	if (v->header.nodes == img->m.graphs[i].nodes)
		return 0;
	return fdry_fail(FDRY_E_BADIMAGE,
			 "it has %u nodes, but %u in the manifest; seal the image anew",
			 v->header.nodes, img->m.graphs[i].nodes);
}

/* Read and verify a graph object, unless *ret is set because another image of the process has
 * it. */
static int graph_get(struct fdry_objects *o, struct fdry_reader *reader, const struct fdry_oid *oid,
		     struct fdry_shared_graph **ret)
{
	struct fdry_buf bytes = { 0 };
	int err;

	if (*ret)
		return 0;
	err = object_get(o, reader, oid, &bytes);
	if (err)
		goto out_release;
	err = fdry_shared_graph_add(oid, &bytes, ret);
out_release:
	fdry_buf_release(&bytes);
	return err;
}

static int graph_read(struct fdry_objects *o, struct fdry_reader *reader, uint32_t i)
{
	struct fdry_image *img = o->img;
	struct fdry_image_exec *x = &img->execs[i];
	int err = graph_get(o, reader, &img->m.graphs[i].oid, &x->graph);

	if (err)
		return err;
	x->view = x->graph->view;
	err = nodes_check(img, i);
	if (err)
		return err;
	err = fdry_budget_fits(&img->budget, x->view.header.arg_bytes,
			       "the arguments of a graph's kernels");
	if (err)
		return err;
	err = fdry_graph_view_check_kernels(&x->view, img->kernels, img->m.n_kernels);
	if (err)
		return err;
	err = fdry_graph_view_check_functions(
		&x->view, fdry_array(img->functions, struct fdry_host_function),
		fdry_array_count(img->functions, struct fdry_host_function));
	if (err)
		return err;
	err = fdry_graph_view_check_semaphores(
		&x->view, fdry_array(img->semaphores, struct fdry_semaphore),
		fdry_array_count(img->semaphores, struct fdry_semaphore));
	if (err)
		return err;
	err = fdry_graph_view_check_arrays(&x->view, img->arrays, img->m.n_arrays);
	return err ? err : fdry_graph_view_check_hosts(&x->view, img->hosts, img->m.n_hosts);
}

static int object_read(struct fdry_objects *o, struct fdry_reader *reader, size_t i)
{
	const struct fdry_manifest *m = &o->img->m;
	uint32_t graph;
	int err;

	if (i < m->n_objects)
		return object_get(o, reader, &m->objects[i].oid, &o->code[i]);
	graph = o->img->order[i - m->n_objects];
	err = graph_read(o, reader, graph);
	return err ? fdry_fail_at(err, "graph %llu", (unsigned long long)m->graphs[graph].key) : 0;
}

static int reading_fn(struct fdry_work *work, unsigned int worker)
{
	struct reading *r = (struct reading *)work; /* work is its first member */
	struct fdry_objects *o = r->o;
	double cpu_ms = fdry_thread_ms();
	int err = object_read(o, o->readers.reader[worker], (size_t)(r - o->readings));

	cpu_ms = fdry_thread_ms() - cpu_ms;
	pthread_mutex_lock(&o->lock);
	o->cpu_ms += cpu_ms;
	o->ndone += !err;
	if (o->ndone == o->count)
		o->done_ms = fdry_now_ms();
	pthread_mutex_unlock(&o->lock);
	return err;
}

/* The number of threads to start: 0 for one object, which takes hardly longer than a thread to
 * start. Otherwise at least one, since the rest of a load mostly waits for other things than the
 * processor. */
static unsigned int threads_for(size_t objects, unsigned int most)
{
	unsigned int n = fdry_cores() - 1;

	if (objects < 2)
		return 0;
	if (most)
		return most - 1;
	if (n > THREADS_MAX)
		n = THREADS_MAX;
	if (n > objects / OBJECTS_A_THREAD)
		n = (unsigned int)(objects / OBJECTS_A_THREAD);
	return n ? n : 1;
}

/* Find the objects that other images of the process have, which are not read again. Returns how
 * many objects remain to be read. */
static size_t objects_share(struct fdry_objects *o)
{
	struct fdry_image *img = o->img;
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < img->m.n_objects; i++) {
		o->loaded[i] = !img->verify && fdry_module_is_shared(&img->m.objects[i].oid);
		n += !o->loaded[i];
	}
	for (i = 0; i < img->m.n_graphs; i++) {
		if (o->first[i] == i && !img->verify)
			img->execs[i].graph = fdry_shared_graph_get(&img->m.graphs[i].oid);
		n += o->first[i] == i && !img->execs[i].graph;
	}
	return n;
}

static void reading_add(struct fdry_objects *o, size_t i)
{
	o->readings[i].work.fn = reading_fn;
	o->readings[i].o = o;
	o->count++;
	fdry_workqueue_add(&o->readers.queue, &o->readings[i].work);
}

/* Queue all tasks and start the threads. A shared graph is a task, too, since it is checked against
 * the kernels of this image. */
static int readings_start(struct fdry_objects *o, unsigned int threads)
{
	const struct fdry_manifest *m = &o->img->m;
	size_t n = objects_share(o);
	uint32_t i;

	o->readings = calloc((size_t)m->n_objects + m->n_graphs + 1, sizeof(*o->readings));
	if (!o->readings)
		return fdry_nomem();
	o->start_ms = fdry_now_ms();
	for (i = 0; i < m->n_objects; i++)
		if (!o->loaded[i])
			reading_add(o, i);
	for (i = 0; i < m->n_graphs; i++)
		if (o->first[o->img->order[i]] == o->img->order[i])
			reading_add(o, (size_t)m->n_objects + i);
	o->threads = fdry_readers_start(&o->readers, threads_for(n, threads), n);
	return 0;
}

static int by_id(const void *a, const void *b, void *m)
{
	const struct fdry_mf_object *objects = ((const struct fdry_manifest *)m)->objects;

	return memcmp(&objects[*(const uint32_t *)a].oid, &objects[*(const uint32_t *)b].oid,
		      sizeof(objects->oid));
}

static int objects_index(struct fdry_objects *o)
{
	struct fdry_manifest *m = &o->img->m;
	uint32_t i;

	o->by_id = calloc((size_t)m->n_objects + 1, sizeof(*o->by_id));
	o->code = calloc((size_t)m->n_objects + 1, sizeof(*o->code));
	o->loaded = calloc((size_t)m->n_objects + 1, sizeof(*o->loaded));
	if (!o->by_id || !o->code || !o->loaded)
		return fdry_nomem();
	for (i = 0; i < m->n_objects; i++)
		o->by_id[i] = i;
	qsort_r(o->by_id, m->n_objects, sizeof(*o->by_id), by_id, m);
	return fdry_manifest_graphs_first(m, &o->first);
}

int fdry_objects_start(struct fdry_image *img, struct fdry_reader *reader,
		       const struct fdry_objects_opts *opts, struct fdry_objects **ret)
{
	struct fdry_objects *o;
	int err = kernel_table(img);

	if (err)
		return err;
	err = order_make(img, opts);
	if (err)
		return err;
	img->execs = calloc((size_t)img->m.n_graphs + 1, sizeof(*img->execs));
	o = calloc(1, sizeof(*o));
	if (!img->execs || !o) {
		free(o);
		return fdry_nomem();
	}
	pthread_mutex_init(&o->lock, NULL);
	fdry_readers_init(&o->readers, img->store, reader, "fdry-objects");
	o->img = img;
	err = objects_index(o);
	if (err)
		goto out_free;
	err = readings_start(o, opts->threads);
	if (err)
		goto out_free;
	*ret = o;
	return 0;
out_free:
	fdry_objects_free(o);
	return err;
}

int fdry_objects_kernel(void *arg, const struct fdry_oid *oid, struct fdry_span *ret)
{
	struct fdry_objects *o = arg;
	const struct fdry_manifest *m = &o->img->m;
	size_t low;
	uint32_t i;
	int err;

	low = fdry_lower_bound(k, m->n_objects,
			       memcmp(&m->objects[o->by_id[k]].oid, oid, sizeof(*oid)) < 0);
	if (low == m->n_objects || !fdry_oid_eq(&m->objects[o->by_id[low]].oid, oid))
		return fdry_bug("a kernel has an object that the manifest does not list");
	i = o->by_id[low];
	if (!o->loaded[i])
		err = fdry_workqueue_wait(&o->readers.queue, &o->readings[i].work);
	else if (o->code[i].len)
		err = 0;
	else /* loaded in another context, or unloaded in the meantime */
		err = object_get(o, o->readers.reader[0], oid, &o->code[i]);
	if (err)
		return err;
	*ret = (struct fdry_span){ o->code[i].data, o->code[i].len };
	return 0;
}

bool fdry_objects_have_kernels(const struct fdry_objects *o)
{
	uint32_t i;

	for (i = 0; i < o->img->m.n_objects && o->loaded[i]; i++)
		;
	return i < o->img->m.n_objects;
}

/* Copy the view of an object to all graphs that share the object. The first of them owns its
 * bytes. */
static int graphs_share(struct fdry_objects *o)
{
	struct fdry_image *img = o->img;
	uint32_t i;
	int err;

	for (i = 0; i < img->m.n_graphs; i++) {
		if (o->first[i] == i)
			continue;
		img->execs[i].view = img->execs[o->first[i]].view;
		err = nodes_check(img, i);
		if (err)
			return fdry_fail_at(err, "graph %llu",
					    (unsigned long long)img->m.graphs[i].key);
	}
	return 0;
}

int fdry_objects_finish(struct fdry_objects *o)
{
	struct fdry_load_report *r = &o->img->report;
	double mark = fdry_now_ms();
	int err = fdry_workqueue_drain(&o->readers.queue);

	if (err)
		return err;
	err = graphs_share(o);
	if (err)
		return err;
	r->wait_ms = fdry_elapsed_ms(&mark);
	r->objects_ms = o->done_ms ? o->done_ms - o->start_ms : 0;
	r->objects_cpu_ms = o->cpu_ms;
	r->object_bytes = o->bytes;
	r->threads = o->threads;
	fdry_image_progress(o->img, FDRY_PHASE_OBJECTS, o->bytes, o->bytes);
	return 0;
}

void fdry_objects_free(struct fdry_objects *o)
{
	uint32_t i;

	if (!o)
		return;
	fdry_readers_release(&o->readers);
	free(o->readings);
	for (i = 0; o->code && i < o->img->m.n_objects; i++)
		fdry_buf_release(&o->code[i]);
	free(o->code);
	free(o->loaded);
	free(o->by_id);
	free(o->first);
	pthread_mutex_destroy(&o->lock);
	free(o);
}
