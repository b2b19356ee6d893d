"""What is read from assembly: loops, counts, spills. The texts are written by hand."""

from __future__ import annotations

from tunegrad.devices.cpu.machine_code import code_facts, hot_loop, innermost_loops, spills

TEXT = """\
kernel:
\tpushq\t%rbx
\tsubq\t$64, %rsp
.LBB0_1:
\txorl\t%eax, %eax
.LBB0_2:
\tvmovups\t(%rdi,%rax,4), %ymm0
\tvfmadd231ps\t(%rsi,%rax,4), %ymm0, %ymm1
\tvfmadd231ps\t%ymm0, %ymm2, %ymm3
\tvmovups\t%ymm3, 32(%rsp)        # 32-byte Spill
\tvmovups\t%ymm1, (%rdx,%rax,4)
\taddq\t$8, %rax
\tcmpq\t%rcx, %rax
\tjne\t.LBB0_2
\tdecq\t%r8
\tjne\t.LBB0_1
.LBB0_4:
\tvmovss\t(%rdi), %xmm0
\tcallq\texpf@PLT
\tjne\t.LBB0_4
\tretq
"""


def test_innermost_loops_hold_no_other_loop() -> None:
    loops = innermost_loops(TEXT)
    assert [len(body.splitlines()) for body in loops] == [7, 2]


def test_loop_with_a_branch_inside_is_one_loop() -> None:
    text = ".L1:\n\tje\t.L2\n\taddq\t$1, %rax\n.L2:\n\tdecq\t%rbx\n\tjne\t.L1\n"
    (body,) = innermost_loops(text)
    assert "addq" in body
    assert "decq" in body


def test_hot_loop_is_the_one_with_the_most_fused_multiply_adds() -> None:
    assert hot_loop(TEXT).count("vfmadd") == 2


def test_code_facts_count_the_hot_loop_and_the_kernel() -> None:
    facts = code_facts(TEXT)
    assert facts is not None
    assert (facts.vector_bits, facts.fmas, facts.instructions) == (256, 2, 7)
    assert (facts.loads, facts.stores, facts.spills, facts.calls) == (2, 2, 1, 0)
    assert (facts.kernel_spills, facts.kernel_instructions) == (1, 17)


def test_code_without_a_loop_is_counted_as_a_whole() -> None:
    facts = code_facts("kernel:\n\tvmovups\t(%rdi), %zmm0\n\tvaddps\t%zmm0, %zmm0, %zmm0\n\tretq\n")
    assert facts is not None
    assert (facts.vector_bits, facts.loads, facts.instructions) == (512, 1, 3)


def test_frame_pointer_makes_rbp_the_stack_and_nothing_else_does() -> None:
    load = "\tvmovups\t-64(%rbp), %zmm0\n"
    assert spills(load) == 0
    assert spills("\tmovq\t%rsp, %rbp\n" + load) == 1


def test_assembly_of_another_machine_gives_no_facts() -> None:
    assert code_facts("kernel:\n\tfmla\tv0.4s, v1.4s, v2.4s\n\tret\n") is None
