/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jump-x86_64.S - see jump.S. Arguments come in rdi, rsi, rdx, rcx, r8, r9 and xmm0-7,
 * with rax (vector registers of a variadic call) and r10 (static chain) kept as well;
 * r11 is free. No driver function takes wider vectors.
 */
	.macro jump nr
	endbr64
	jmp *fdry_jumps + 8 * \nr(%rip)
	.endm

	.macro stub nr
	endbr64
	push $\nr
	jmp fdry_jump_enter
	.endm

	.text
	.balign 16
	.type fdry_jump_enter, %function
fdry_jump_enter:
	.cfi_startproc
	.cfi_def_cfa_offset 16	/* return address, slot number */
	sub $192, %rsp
	.cfi_adjust_cfa_offset 192
	mov %rdi, 128(%rsp)
	mov %rsi, 136(%rsp)
	mov %rdx, 144(%rsp)
	mov %rcx, 152(%rsp)
	mov %r8, 160(%rsp)
	mov %r9, 168(%rsp)
	mov %rax, 176(%rsp)
	mov %r10, 184(%rsp)
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7
	movups %xmm\n, 16 * \n(%rsp)
	.endr
	mov 192(%rsp), %rdi
	call fdry_jump_resolve
	mov %rax, %r11
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7
	movups 16 * \n(%rsp), %xmm\n
	.endr
	mov 128(%rsp), %rdi
	mov 136(%rsp), %rsi
	mov 144(%rsp), %rdx
	mov 152(%rsp), %rcx
	mov 160(%rsp), %r8
	mov 168(%rsp), %r9
	mov 176(%rsp), %rax
	mov 184(%rsp), %r10
	add $200, %rsp
	.cfi_adjust_cfa_offset -200
	jmp *%r11
	.cfi_endproc
	.size fdry_jump_enter, . - fdry_jump_enter
