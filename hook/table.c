// SPDX-License-Identifier: Apache-2.0
/*
 * table.c - the table through which the library calls the interposer; see hook.h.
 *
 * The interposer has no constructor and starts no thread: a process that never calls CUDA pays only
 * for mapping it.
 */
#include "hook/internal.h"

static const struct fdry_hook table = {
	.version = FDRY_HOOK_VERSION,
	.size = sizeof(table),
	.last_error = fdry_last_error,
	.real_path = fdry_find_path,
	.late = fdry_loaded_late,
	.forked = fdry_start_forked,
	.reached = fdry_bypass_check,
	.region_begin = fdry_hook_region_begin,
	.region_move = fdry_hook_region_move,
	.region_pause = fdry_hook_region_pause,
	.region_resume = fdry_hook_region_resume,
	.region_end = fdry_hook_region_end,
	.region_preallocate = fdry_hook_region_preallocate,
	.region_free_preallocated = fdry_hook_region_free_preallocated,
	.region_offset = fdry_hook_region_offset,
	.region_set_offset = fdry_hook_region_set_offset,
	.region_claim = fdry_hook_region_claim,
	.region_free = fdry_hook_region_free,
	.region_ledger = fdry_hook_region_ledger,
	.code_find = fdry_note_find,
	.live = fdry_hook_live,
	.launches_hold = fdry_hook_launches_hold,
	.origin = fdry_hook_origin,
	.origin_at = fdry_hook_origin_at,
	.region_aside_begin = fdry_hook_region_aside_begin,
	.region_aside = fdry_hook_region_aside,
	.region_aside_used = fdry_hook_region_aside_used,
	.region_pinned = fdry_hook_region_pinned,
	.pinned_ledger = fdry_hook_pinned_ledger,
	.pinned_used = fdry_hook_pinned_used,
	.pinned_claim = fdry_hook_pinned_claim,
	.pinned_free = fdry_hook_pinned_free,
	.conditional = fdry_hook_conditional,
	.attributes = fdry_hook_attributes,
	.array = fdry_hook_array,
	.code_files = fdry_hook_code_files,
};

const struct fdry_hook *fdry_hook_table(void)
{
	return &table;
}
