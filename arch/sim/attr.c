// SPDX-License-Identifier: Apache-2.0
/*
 * attr.c - attributes of kernel nodes.
 *
 * A node's launch holds the attributes that differ from a fresh node's, in the order of
 * node_attrs[]. All others have their defaults.
 */
#include "arch/sim/graph.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DOMAINS 4 /* CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT */

static bool window_ok(const CUlaunchAttributeValue *v)
{
	const CUaccessPolicyWindow *w = &v->accessPolicyWindow;

	return w->hitRatio >= 0 && w->hitRatio <= 1 &&
	       (unsigned int)w->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       (unsigned int)w->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

static bool cooperative_ok(const CUlaunchAttributeValue *v)
{
	return v->cooperative == 0 || v->cooperative == 1;
}

static bool cluster_ok(const CUlaunchAttributeValue *v)
{
	return v->clusterDim.x && v->clusterDim.y && v->clusterDim.z;
}

static bool scheduling_ok(const CUlaunchAttributeValue *v)
{
	return (unsigned int)v->clusterSchedulingPolicyPreference <=
	       CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
}

static bool any_ok(const CUlaunchAttributeValue *v)
{
	(void)v;
	return true;
}

static bool domain_map_ok(const CUlaunchAttributeValue *v)
{
	return v->memSyncDomainMap.default_ < DOMAINS && v->memSyncDomainMap.remote < DOMAINS;
}

static bool domain_ok(const CUlaunchAttributeValue *v)
{
	return (unsigned int)v->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
}

/* Devices of this driver cannot update nodes. */
static bool updatable_ok(const CUlaunchAttributeValue *v)
{
	return !v->deviceUpdatableKernelNode.deviceUpdatable;
}

static bool carveout_ok(const CUlaunchAttributeValue *v)
{
	return v->sharedMemCarveout <= 100 || v->sharedMemCarveout == UINT_MAX;
}

static bool nvlink_ok(const CUlaunchAttributeValue *v)
{
	return v->nvlinkUtilCentricScheduling <= 1;
}

struct node_attr {
	CUlaunchAttributeID id;
	size_t size; /* bytes of the value in use */
	bool (*ok)(const CUlaunchAttributeValue *v);
	CUlaunchAttributeValue fresh; /* of a new node */
	bool write_only; /* in the real driver it can be set but not read */
};

#define MEMBER_SIZE(member) sizeof(((CUlaunchAttributeValue *)0)->member)

static const struct node_attr node_attrs[] = {
	{ CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
	  MEMBER_SIZE(accessPolicyWindow),
	  window_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
	  MEMBER_SIZE(cooperative),
	  cooperative_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
	  MEMBER_SIZE(clusterDim),
	  cluster_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
	  MEMBER_SIZE(clusterSchedulingPolicyPreference),
	  scheduling_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_PRIORITY, MEMBER_SIZE(priority), any_ok, { { 0 } }, false },
	{ CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
	  MEMBER_SIZE(memSyncDomainMap),
	  domain_map_ok,
	  { .memSyncDomainMap = { 0, 1 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
	  MEMBER_SIZE(memSyncDomain),
	  domain_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
	  MEMBER_SIZE(preferredClusterDim),
	  cluster_ok,
	  { { 0 } },
	  true },
	{ CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
	  MEMBER_SIZE(deviceUpdatableKernelNode),
	  updatable_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
	  MEMBER_SIZE(sharedMemCarveout),
	  carveout_ok,
	  { { 0 } },
	  false },
	{ CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
	  MEMBER_SIZE(nvlinkUtilCentricScheduling),
	  nvlink_ok,
	  { { 0 } },
	  true },
};

#define NODE_ATTRS (sizeof(node_attrs) / sizeof(*node_attrs))

static const struct node_attr *attr_find(CUlaunchAttributeID id)
{
	for (size_t i = 0; i < NODE_ATTRS; i++)
		if (node_attrs[i].id == id)
			return &node_attrs[i];
	return NULL;
}

/* The value in a launch's list; if there are several, the last one counts. */
static const CUlaunchAttributeValue *attr_value(const struct sim_launch *l,
						const struct node_attr *a)
{
	for (unsigned int i = l->nattrs; i--;)
		if (l->attrs[i].id == a->id)
			return &l->attrs[i].value;
	return &a->fresh;
}

void sim_attr_get(const struct sim_launch *l, CUlaunchAttributeID id, CUlaunchAttributeValue *ret)
{
	const struct node_attr *a = attr_find(id);
	const CUlaunchAttributeValue *v = attr_value(l, a);

	memset(ret, 0, sizeof(*ret));
	memcpy(ret, v, a->size);
}

/* Set these values on @l, one for each of node_attrs[]. */
static CUresult attrs_store(struct sim_launch *l, const CUlaunchAttributeValue *values)
{
	CUlaunchAttribute *attrs = calloc(NODE_ATTRS, sizeof(*attrs));
	unsigned int n = 0;

	if (!attrs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < NODE_ATTRS; i++) {
		if (!memcmp(&values[i], &node_attrs[i].fresh, node_attrs[i].size))
			continue;
		attrs[n].id = node_attrs[i].id;
		attrs[n++].value = values[i];
	}
	free(l->attrs);
	l->attrs = attrs;
	l->nattrs = n;
	return CUDA_SUCCESS;
}

static void attrs_load(const struct sim_launch *l, CUlaunchAttributeValue *values)
{
	for (size_t i = 0; i < NODE_ATTRS; i++)
		sim_attr_get(l, node_attrs[i].id, &values[i]);
}

static bool attr_given(const struct sim_launch *l, CUlaunchAttributeID id)
{
	for (unsigned int i = 0; i < l->nattrs; i++)
		if (l->attrs[i].id == id)
			return true;
	return false;
}

CUresult sim_attrs_settle(struct sim_launch *l, int priority)
{
	bool prioritised = attr_given(l, CU_LAUNCH_ATTRIBUTE_PRIORITY);
	bool scheduled = attr_given(l, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
	CUlaunchAttributeValue values[NODE_ATTRS];

	attrs_load(l, values);
	for (size_t i = 0; i < NODE_ATTRS; i++) {
		if (node_attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY && !prioritised)
			values[i].priority = priority;
		/*
		 * In the real driver, a captured launch has this attribute, an added node has not.
		 */
		if (node_attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE &&
		    !scheduled)
			values[i].clusterSchedulingPolicyPreference =
				CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
	}
	return attrs_store(l, values);
}

static CUresult kernel_find(CUgraphNode node, struct sim_node **ret)
{
	SIM_TRY(sim_node_find(node, ret));
	return (*ret)->type == CU_GRAPH_NODE_TYPE_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       CUkernelNodeAttrValue *ret)
{
	struct sim_node *n;

	SIM_ENTER(cuGraphKernelNodeGetAttribute);
	SIM_TRY(kernel_find(node, &n));
	if (!ret || !attr_find(id) || attr_find(id)->write_only)
		return CUDA_ERROR_INVALID_VALUE;
	sim_attr_get(&n->op.launch, id, ret);
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *value)
{
	const struct node_attr *a = attr_find(id);
	CUlaunchAttributeValue values[NODE_ATTRS];
	struct sim_node *n;

	SIM_ENTER(cuGraphKernelNodeSetAttribute);
	SIM_TRY(kernel_find(node, &n));
	if (!value || !a || !a->ok(value) ||
	    id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION)
		return CUDA_ERROR_INVALID_VALUE; /* as driver 580 does on an H200 */
	attrs_load(&n->op.launch, values);
	memset(&values[a - node_attrs], 0, sizeof(*values));
	memcpy(&values[a - node_attrs], value, a->size);
	return attrs_store(&n->op.launch, values);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	CUlaunchAttributeValue values[NODE_ATTRS];
	struct sim_node *to, *from;

	SIM_ENTER(cuGraphKernelNodeCopyAttributes);
	SIM_TRY(kernel_find(dst, &to));
	SIM_TRY(kernel_find(src, &from));
	if (to->op.launch.func->ctx != from->op.launch.func->ctx)
		return CUDA_ERROR_INVALID_VALUE;
	attrs_load(&from->op.launch, values);
	return attrs_store(&to->op.launch, values);
}
