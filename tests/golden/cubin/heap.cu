// SPDX-License-Identifier: Apache-2.0
// Kernels that use the device's heap.

struct item {
	struct item *next;
	unsigned int value;
};

// Each thread makes a list of n items, sums them and frees them. ~0: the heap was full.
extern "C" __global__ void lists(const unsigned int *in, unsigned int *out, int n)
{
	struct item *list = nullptr, *next;
	unsigned int sum = 0;
	bool full = false;

	for (int i = 0; i < n && !full; i++) {
		next = (struct item *)malloc(sizeof(*next));
		full = !next;
		if (full)
			break;
		next->next = list;
		next->value = in[i] * (threadIdx.x + 1);
		list = next;
	}
	for (; list; list = next) {
		next = list->next;
		sum += list->value;
		free(list);
	}
	out[threadIdx.x] = full ? ~0u : sum;
}

// One block of many bytes, of which a word in each page is used. ~0: the heap was full.
extern "C" __global__ void large(const unsigned int *in, unsigned int *out, size_t bytes)
{
	volatile unsigned int *p = (unsigned int *)malloc(bytes);
	unsigned int sum = 0;

	if (!p) {
		*out = ~0u;
		return;
	}
	for (size_t i = 0; i < bytes / 4; i += 1024)
		p[i] = (unsigned int)i + in[0];
	for (size_t i = 0; i < bytes / 4; i += 1024)
		sum += p[i];
	*out = sum;
	free((void *)p);
}

__device__ unsigned int *kept;

// Keeps a block in the variable, allocating it at the first launch; counts launches in it.
extern "C" __global__ void counts(unsigned int *out)
{
	if (!kept) {
		kept = (unsigned int *)malloc(16);
		*kept = 0;
	}
	*out = ++*kept;
}

extern "C" __global__ void forgets()
{
	free(kept);
	kept = nullptr;
}

extern "C" __global__ void keeps(unsigned int **out)
{
	*out = (unsigned int *)malloc(16);
}

extern "C" __global__ void drops(unsigned int **out)
{
	free(*out);
	*out = nullptr;
}

extern "C" __global__ void reads(const unsigned int *in, unsigned int *out)
{
	*out = *in;
}
