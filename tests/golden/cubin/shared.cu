// SPDX-License-Identifier: Apache-2.0
// Shared, local and texture memory, launch bounds, clusters.

extern "C" __global__ void reverse(int *out)
{
	__shared__ int s[64];

	s[threadIdx.x] = out[threadIdx.x];
	__syncthreads();
	out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(128) dynamic(int *out)
{
	extern __shared__ int d[];
	__shared__ int s[32];

	d[threadIdx.x] = out[threadIdx.x];
	s[threadIdx.x & 31] = threadIdx.x;
	__syncthreads();
	out[threadIdx.x] = d[threadIdx.x ^ 1] + s[31 - (threadIdx.x & 31)];
}

extern "C" __global__ void local(int *out, int i)
{
	int a[40];

	for (int k = 0; k < 40; k++)
		a[(k * 7 + i) % 40] = out[threadIdx.x] + k;
	out[threadIdx.x] = a[(i + threadIdx.x) % 40];
}

extern "C" __global__ void sample(float *out, cudaTextureObject_t tex)
{
	out[threadIdx.x] = tex1Dfetch<float>(tex, threadIdx.x);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(int *out)
{
	unsigned int rank;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	out[blockIdx.x * blockDim.x + threadIdx.x] = rank;
}
#endif
