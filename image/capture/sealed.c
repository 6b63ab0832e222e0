// SPDX-License-Identifier: Apache-2.0
/* sealed.c - stores the results of a seal and finds them again; see sealed.h. */
#include "image/capture/sealed.h"

#include "arch/stream.h"
#include "image/capture/capture.h"
#include "image/shared_fingerprinter.h"
#include "lib/search.h"

int fdry_sealed_add(struct fdry_sealed *s, const struct fdry_sealed_cell *cell,
		    const struct fdry_mf_chunk *chunks, const struct fdry_fingerprint *prints,
		    const struct fdry_sealed_word *words)
{
	struct fdry_sealed_cell c = *cell;
	int err;

	c.chunk = fdry_array_count(s->chunks, struct fdry_mf_chunk);
	c.word = fdry_array_count(s->words, struct fdry_sealed_word);
	err = fdry_buf_put(&s->chunks, chunks, c.nchunks * sizeof(*chunks));
	if (err)
		return err;
	err = fdry_buf_put(&s->prints, prints, c.nchunks * sizeof(*prints));
	if (err)
		return err;
	err = fdry_buf_put(&s->words, words, c.nwords * sizeof(*words));
	return err ? err : fdry_buf_put(&s->cells, &c, sizeof(c));
}

const struct fdry_sealed_cell *fdry_sealed_cell(const struct fdry_sealed *s, uint64_t origin,
						uint64_t addr, uint64_t len)
{
	const struct fdry_sealed_cell *c = fdry_array(s->cells, struct fdry_sealed_cell);
	size_t n = fdry_array_count(s->cells, struct fdry_sealed_cell);
	size_t lo = fdry_lower_bound(i, n, c[i].addr < addr);

	return lo < n && c[lo].addr == addr && c[lo].len == len && c[lo].origin == origin ? &c[lo]
											  : NULL;
}

const struct fdry_sealed_stamps *fdry_sealed_stamps(const struct fdry_sealed *s, uint64_t addr,
						    uint64_t len)
{
	const struct fdry_sealed_stamps *p = fdry_array(s->stamps, struct fdry_sealed_stamps);
	size_t n = fdry_array_count(s->stamps, struct fdry_sealed_stamps);
	size_t lo = fdry_lower_bound(i, n, p[i].addr < addr);

	return lo < n && p[lo].addr == addr && p[lo].len == len ? &p[lo] : NULL;
}

const struct fdry_mf_chunk *fdry_sealed_chunk(const struct fdry_sealed *s, uint64_t addr,
					      uint64_t len, struct fdry_fingerprint print)
{
	const struct fdry_mf_chunk *k = fdry_array(s->chunks, struct fdry_mf_chunk);
	size_t n = fdry_array_count(s->chunks, struct fdry_mf_chunk);
	size_t lo = fdry_lower_bound(i, n, k[i].addr < addr);

	if (lo == n || k[lo].addr != addr || k[lo].size != len ||
	    !fdry_fingerprint_eq(fdry_array(s->prints, struct fdry_fingerprint)[lo], print))
		return NULL;
	return &k[lo];
}

void fdry_sealed_content_release(struct fdry_sealed *s)
{
	fdry_buf_release(&s->cells);
	fdry_buf_release(&s->chunks);
	fdry_buf_release(&s->prints);
	fdry_buf_release(&s->words);
}

void fdry_sealed_release(struct fdry_sealed *s, bool alive)
{
	fdry_sealed_content_release(s);
	fdry_buf_release(&s->stamps);
	fdry_buf_release(&s->hosts);
	if (alive)
		fdry_shared_fingerprinter_put(s->f);
	s->f = NULL;
}

static int prints_get(struct fdry_capture *cap, const struct fdry_fingerprint_range *ranges,
		      size_t n, struct fdry_fingerprint *ret)
{
	struct fdry_sealed *s = &cap->sealed;
	CUstream stream;
	int err = fdry_stream_shared(cap->drv, FDRY_STREAM_MEMORY, &stream);

	if (err)
		return err;
	if (!s->f) {
		err = fdry_shared_fingerprinter_get(cap->drv, cap->device, NULL, &s->f);
		if (err)
			return err;
	}
	return fdry_shared_fingerprinter_run(s->f, stream, ranges, n, ret);
}

bool fdry_sealed_fingerprints(struct fdry_capture *cap, const struct fdry_fingerprint_range *ranges,
			      size_t n, struct fdry_fingerprint *ret)
{
	if (!n || (!cap->sealed.unreadable && !prints_get(cap, ranges, n, ret)))
		return true;
	fdry_count(FDRY_METRIC_SEAL_FALLBACKS, 1);
	return false;
}
