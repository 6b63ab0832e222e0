// SPDX-License-Identifier: Apache-2.0
/*
 * decode.c - runs the image that decode.py captured, without Python.
 *
 *   decode [-s STORE] [-r REF] [-p PROMPT] [-n STEPS] [-b 1,2,4] [-w WEIGHTS] [-f MODEL-FACT] [-x]
 *
 * Loads the image, feeds the prompt, decodes, and prints the digest of every token and logit for
 * each batch size, as decode.py does. WEIGHTS is the file of `decode.py capture --weights
 * external`. -x poisons scratch and external memory.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <foundry.h>

#define LAYERS 28
#define VOCAB 151936
#define ROWS_MAX 64

struct options {
	const char *store, *ref, *prompt, *batches, *weights, *fact;
	int steps;
	uint32_t flags;
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void phase(const char *what, double ms)
{
	printf("  %-34s %11.3f ms\n", what, ms);
}

static void die(const char *what)
{
	fprintf(stderr, "decode: %s\n", what);
	exit(1);
}

static void check(int err)
{
	if (err)
		die(fdry_last_error());
}

static void *zeroed(size_t bytes)
{
	void *p = calloc(bytes ? bytes : 1, 1);

	if (!p)
		die("out of memory");
	return p;
}

static size_t tensor_bytes(const struct fdry_tensor *t)
{
	size_t bytes = fdry_dtype_size(t->dtype);
	uint32_t d;

	for (d = 0; d < t->rank; d++)
		bytes *= (size_t)t->shape[d];
	return bytes;
}

static void tensor_zero(struct fdry_image *img, const char *name)
{
	struct fdry_tensor t;
	void *zeros;

	check(fdry_image_tensor_find(img, name, &t));
	zeros = zeroed(tensor_bytes(&t));
	check(fdry_image_write(img, name, zeros, tensor_bytes(&t), NULL));
	free(zeros);
}

static void state_reset(struct fdry_image *img, int batch)
{
	struct fdry_tensor t;
	char name[64];
	void *junk;
	int i;

	tensor_zero(img, "token");
	tensor_zero(img, "position");
	for (i = 0; i < LAYERS; i++) {
		snprintf(name, sizeof(name), "keys/%d", i);
		tensor_zero(img, name);
		snprintf(name, sizeof(name), "values/%d", i);
		tensor_zero(img, name);
	}
	snprintf(name, sizeof(name), "logits/%d", batch);
	check(fdry_image_tensor_find(img, name, &t));
	junk = zeroed(tensor_bytes(&t));
	memset(junk, 0xFF, tensor_bytes(&t));
	check(fdry_image_write(img, name, junk, tensor_bytes(&t), NULL));
	free(junk);
}

/* The file has the weights in the order of their names, as the image does. Other external tensors
 * are cleared. */
static void externals_fill(struct fdry_image *img, const char *path)
{
	FILE *f = path ? fopen(path, "rb") : NULL;
	size_t i, bytes;
	struct fdry_tensor t;
	void *data;

	for (i = 0; i < fdry_image_tensor_count(img); i++) {
		check(fdry_image_tensor(img, i, &t));
		if (!(t.flags & FDRY_TENSOR_EXTERNAL))
			continue;
		bytes = tensor_bytes(&t);
		data = zeroed(bytes);
		if (!strncmp(t.name, "weight/", 7) && (!f || fread(data, 1, bytes, f) != bytes))
			die("the image needs weights from a file; name it with -w");
		check(fdry_image_write(img, t.name, data, bytes, NULL));
		free(data);
	}
	if (f)
		fclose(f);
}

static void prompt_write(struct fdry_image *img, unsigned char byte, int batch)
{
	struct fdry_tensor t;
	int64_t tokens[ROWS_MAX] = { 0 };
	int row;

	check(fdry_image_tensor_find(img, "token", &t));
	if (batch > t.shape[0] || t.shape[0] > ROWS_MAX)
		die("the image has no such batch size");
	for (row = 0; row < batch; row++)
		tokens[row] = ((int64_t)byte * 577 + row * 7919 + 11) % VOCAB;
	check(fdry_image_write(img, "token", tokens, tensor_bytes(&t), NULL));
}

static void digest_step(struct fdry_image *img, int batch, EVP_MD_CTX *md)
{
	int64_t tokens[ROWS_MAX];
	struct fdry_tensor t;
	char name[64];
	void *logits;

	check(fdry_image_tensor_find(img, "token", &t));
	check(fdry_image_read(img, "token", tokens, tensor_bytes(&t), NULL));
	EVP_DigestUpdate(md, tokens, (size_t)batch * sizeof(*tokens));
	snprintf(name, sizeof(name), "logits/%d", batch);
	check(fdry_image_tensor_find(img, name, &t));
	logits = zeroed(tensor_bytes(&t));
	check(fdry_image_read(img, name, logits, tensor_bytes(&t), NULL));
	EVP_DigestUpdate(md, logits, tensor_bytes(&t));
	free(logits);
}

static void decode(struct fdry_image *img, const struct options *o, int batch)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	unsigned char digest[32];
	unsigned int i, n = 0;
	const char *p;
	int step;

	if (!md || !EVP_DigestInit_ex(md, EVP_sha256(), NULL))
		die("libcrypto has no SHA-256");
	state_reset(img, batch);
	for (p = o->prompt; *p; p++) {
		prompt_write(img, (unsigned char)*p, batch);
		check(fdry_image_launch(img, (uint64_t)batch, NULL));
	}
	for (step = 0; step < o->steps; step++) {
		if (step)
			check(fdry_image_launch(img, (uint64_t)batch, NULL));
		digest_step(img, batch, md);
	}
	EVP_DigestFinal_ex(md, digest, &n);
	EVP_MD_CTX_free(md);
	printf("digest %d ", batch);
	for (i = 0; i < n; i++)
		printf("%02x", digest[i]);
	printf("\n");
}

/* Shows that this process has loaded no framework. */
static void maps_look(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[4096];
	int torch = 0, python = 0;

	while (f && fgets(line, sizeof(line), f)) {
		torch |= strstr(line, "libtorch") != NULL;
		python |= strstr(line, "libpython") != NULL;
	}
	if (f)
		fclose(f);
	printf("torch mapped: %s, python mapped: %s\n", torch ? "yes" : "no",
	       python ? "yes" : "no");
}

static void options_read(int argc, char **argv, struct options *o)
{
	int opt;

	while ((opt = getopt(argc, argv, "s:r:p:n:b:w:f:x")) != -1) {
		switch (opt) {
		case 's': o->store = optarg; break;
		case 'r': o->ref = optarg; break;
		case 'p': o->prompt = optarg; break;
		case 'n': o->steps = atoi(optarg); break;
		case 'b': o->batches = optarg; break;
		case 'w': o->weights = optarg; break;
		case 'f': o->fact = optarg; break;
		case 'x': o->flags |= FDRY_LOAD_POISON; break;
		default: exit(2);
		}
	}
}

static void report_show(struct fdry_image *img)
{
	struct fdry_load_report r = { .sz = sizeof(r) };

	check(fdry_image_report(img, &r));
	phase("load", r.total_ms);
	phase("  of it driver", r.driver_ms);
	phase("  of it manifest", r.manifest_ms);
	phase("  of it memory", r.memory_ms);
	phase("  of it content", r.content_ms);
	phase("  of it kernels", r.kernels_ms);
	phase("  beside: objects", r.objects_ms);
	printf("  %llu bytes mapped, %llu of content, %llu of it verified\n",
	       (unsigned long long)r.mapped_bytes, (unsigned long long)r.content_bytes,
	       (unsigned long long)r.verified_bytes);
}

static void batches_each(struct fdry_image *img, const struct options *o,
			 void (*fn)(struct fdry_image *, const struct options *, int))
{
	const char *p = o->batches;
	char *end;

	for (; *p; p = *end ? end + 1 : end) {
		fn(img, o, (int)strtol(p, &end, 10));
		if (end == p)
			die("-b needs numbers, separated by commas");
	}
}

static void build(struct fdry_image *img, const struct options *o, int batch)
{
	(void)o;
	check(fdry_image_build(img, (uint64_t)batch));
}

static void replay(struct fdry_image *img, const struct options *o, int batch)
{
	double start = 0;
	char name[64];
	int i;

	(void)o;
	for (i = -3; i < 20; i++) {
		if (i == 0) {
			check(fdry_image_synchronize(img, NULL));
			start = now_ms();
		}
		check(fdry_image_launch(img, (uint64_t)batch, NULL));
	}
	check(fdry_image_synchronize(img, NULL));
	snprintf(name, sizeof(name), "replay, batch %d", batch);
	phase(name, (now_ms() - start) / 20);
}

int main(int argc, char **argv)
{
	struct options o = { .ref = "qwen3-0.6b/decode",
			     .prompt = "Once upon a time",
			     .batches = "1,2,4,8,16,32",
			     .steps = 32,
			     .fact = "qwen3-0.6b-shape seed 0" };
	struct fdry_load_opts opts = { .sz = sizeof(opts), .nfacts = 1 };
	struct fdry_fact fact = { .key = "model" };
	struct fdry_store *store;
	struct fdry_image *img;
	double mark;

	options_read(argc, argv, &o);
	fact.value = o.fact;
	opts.facts = &fact;
	opts.flags = o.flags;
	check(fdry_store_open(o.store, 0, &store));
	check(fdry_image_load(store, o.ref, &opts, &img));
	report_show(img);
	mark = now_ms();
	externals_fill(img, o.weights);
	phase("external tensors", now_ms() - mark);
	mark = now_ms();
	batches_each(img, &o, build);
	phase("build of the graphs", now_ms() - mark);
	batches_each(img, &o, replay);
	batches_each(img, &o, decode);
	maps_look();
	fdry_image_unload(img);
	fdry_store_close(store);
	return 0;
}
