// SPDX-License-Identifier: Apache-2.0
// As many bytes of parameters as a kernel can have, 32,764; and NCCL's 4,096.
struct words {
	unsigned w[8188];
};
struct four {
	unsigned w[1022];
};

extern "C" __global__ void large(unsigned *dst, unsigned n, const __grid_constant__ words all)
{
	for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
		dst[i] = all.w[i];
}

extern "C" __global__ void partial(unsigned *dst, const __grid_constant__ four all)
{
	dst[threadIdx.x] = all.w[threadIdx.x];
}
