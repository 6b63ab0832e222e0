// SPDX-License-Identifier: Apache-2.0
/* stat.c - describes the store: objects by kind, its limit, and its file. */
#include "api/cmd/cmd.h"

static void kind_text(const char *name, const struct fdry_sum *sum)
{
	printf("%-10s %10llu %12s %12s", name, (unsigned long long)sum->objects,
	       cmd_size(sum->bytes).text, cmd_size(sum->stored).text);
	if (sum->bytes)
		printf(" %5.1f %%", 100.0 * (double)sum->stored / (double)sum->bytes);
	printf("\n");
}

/* Returns the percentage of free pages outside of the longest free piece. A large value needs one
 * piece. */
static unsigned int fragmentation(const struct fdry_file_stat *f)
{
	return f->free_pages ? (unsigned int)(100 - 100 * f->longest_run / f->free_pages) : 0;
}

struct stat_all {
	struct fdry_store_stat st;
	struct fdry_load_stats loads;
	struct fdry_sharing sh;
	uint64_t limit, used; /* of the file; limit 0: none */
};

static void limit_text(const struct stat_all *all)
{
	printf("in use     %s", cmd_size(all->used).text);
	if (all->limit)
		printf(" of %s, beyond which images are evicted", cmd_size(all->limit).text);
	printf("\n");
}

static void misses_text(const struct fdry_load_stats *l)
{
	uint32_t i;

	for (i = 0; i < l->codes; i++)
		printf("  %-8llu %s\n", (unsigned long long)l->why[i].count,
		       fdry_error_meaning(l->why[i].code));
}

/* Loads and captures of this host. */
static void loads_text(const struct fdry_load_stats *l)
{
	uint64_t all = l->hits + l->missed;

	if (!l->since) {
		printf("\nloads      none counted\n");
		return;
	}
	printf("\nloads      %llu since %s\n", (unsigned long long)all, cmd_date(l->since).text);
	printf("hits       %llu (%.1f %%)\n", (unsigned long long)l->hits,
	       all ? 100.0 * (double)l->hits / (double)all : 0.0);
	printf("misses     %llu\n", (unsigned long long)l->missed);
	misses_text(l);
	printf("captures   %llu\n", (unsigned long long)l->captures);
	printf("loaded     %s in %s", cmd_size(l->bytes).text,
	       cmd_duration((double)l->load_us / 1e3).text);
	if (l->hits)
		printf(", %s a load",
		       cmd_duration((double)l->load_us / 1e3 / (double)l->hits).text);
	printf("\n");
	if (l->saved_hits)
		printf("saved      %s by %llu hit%s on images that were captured here\n",
		       cmd_duration((double)l->saved_us / 1e3).text,
		       (unsigned long long)l->saved_hits, cmd_plural(l->saved_hits));
}

static void stat_text(struct fdry_store *s, const struct stat_all *all)
{
	const struct fdry_store_stat *st = &all->st;
	const struct fdry_file_stat *f = &st->file;
	int kind;

	printf("store %s\nfor %s\n\n%-10s %10s %12s %12s\n", cmd_text(fdry_store_path(s)),
	       cmd_owner(&all->sh).text, "KIND", "OBJECTS", "UNPACKED", "AT REST");
	for (kind = 1; kind <= FDRY_OBJECT_MANIFEST; kind++)
		kind_text(fdry_object_kind_name(kind), &st->kinds[kind]);
	kind_text("all", &st->kinds[0]);
	printf("\nrefs       %llu\n", (unsigned long long)st->refs);
	limit_text(all);
	printf("data.mdb   %s, %s of it on disk\n", cmd_size(f->file_bytes).text,
	       cmd_size(f->disk_bytes).text);
	printf("pages      %llu of %llu bytes, %llu free (%s)\n", (unsigned long long)f->pages,
	       (unsigned long long)f->page_size, (unsigned long long)f->free_pages,
	       cmd_size(f->free_pages * f->page_size).text);
	printf("free       in %llu piece%s, the longest %s; %u %% fragmented\n",
	       (unsigned long long)f->free_runs, cmd_plural(f->free_runs),
	       cmd_size(f->longest_run * f->page_size).text, fragmentation(f));
	printf("map        %s\n", cmd_size(f->map_bytes).text);
	printf("readers    %u of %u\n", f->readers, f->readers_max);
	loads_text(&all->loads);
}

static void file_json(struct json *j, const struct fdry_file_stat *f)
{
	json_open(j, "file", '{');
	json_number(j, "bytes", f->file_bytes);
	json_number(j, "disk", f->disk_bytes);
	json_number(j, "page_size", f->page_size);
	json_number(j, "pages", f->pages);
	json_number(j, "free_pages", f->free_pages);
	json_number(j, "free_runs", f->free_runs);
	json_number(j, "longest_run", f->longest_run);
	json_number(j, "fragmentation", fragmentation(f));
	json_number(j, "map", f->map_bytes);
	json_number(j, "readers", f->readers);
	json_number(j, "readers_max", f->readers_max);
	json_close(j, '}');
}

static void loads_json(struct json *j, const struct fdry_load_stats *l)
{
	uint32_t i;

	json_open(j, "loads", '{');
	json_number(j, "since", l->since);
	json_number(j, "hits", l->hits);
	json_number(j, "misses", l->missed);
	json_open(j, "missed", '[');
	for (i = 0; i < l->codes; i++) {
		json_open(j, NULL, '{');
		json_string(j, "error", fdry_error_name(l->why[i].code));
		json_string(j, "meaning", fdry_error_meaning(l->why[i].code));
		json_number(j, "count", l->why[i].count);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_number(j, "captures", l->captures);
	json_number(j, "bytes", l->bytes);
	json_number(j, "microseconds", l->load_us);
	json_number(j, "saved_hits", l->saved_hits);
	json_number(j, "saved_microseconds", l->saved_us);
	json_close(j, '}');
}

static void stat_json(struct fdry_store *s, const struct stat_all *all)
{
	const struct fdry_store_stat *st = &all->st;
	struct json j = { .f = stdout };
	int kind;

	json_open(&j, NULL, '{');
	json_string(&j, "store", fdry_store_path(s));
	cmd_sharing_json(&j, &all->sh);
	json_number(&j, "refs", st->refs);
	json_number(&j, "limit", all->limit);
	json_number(&j, "used", all->used);
	json_open(&j, "kinds", '{');
	for (kind = 0; kind <= FDRY_OBJECT_MANIFEST; kind++) {
		json_open(&j, kind ? fdry_object_kind_name(kind) : "all", '{');
		json_number(&j, "objects", st->kinds[kind].objects);
		json_number(&j, "bytes", st->kinds[kind].bytes);
		json_number(&j, "stored", st->kinds[kind].stored);
		json_close(&j, '}');
	}
	json_close(&j, '}');
	file_json(&j, &st->file);
	loads_json(&j, &all->loads);
	json_close(&j, '}');
}

int cmd_stat(const struct cmd_args *a, struct fdry_store *s)
{
	struct cmd_progress p;
	struct stat_all all;
	int err = cmd_has(a, ZERO) ? fdry_store_load_stats_zero(s) : 0;

	if (err)
		return cmd_fail(err);
	cmd_progress_begin(&p, a, "objects", false);
	err = fdry_store_stat(s, cmd_progress_step, &p, &all.st);
	cmd_progress_end(&p);
	err = err ?: fdry_store_sharing(s, &all.sh) ?:
	      fdry_store_limit(s, &all.limit, &all.used) ?: fdry_store_load_stats(s, &all.loads);
	if (err)
		return cmd_fail(err);
	if (cmd_has(a, JSON))
		stat_json(s, &all);
	else
		stat_text(s, &all);
	return CMD_OK;
}
