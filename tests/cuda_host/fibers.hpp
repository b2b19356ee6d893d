// A stack of its own that can be left and come back to.
//
//     Context a, b;   fresh(b, stack, bytes, entry);   switch_to(a, b);   leaves a, runs entry on b
//
// One file of a library includes it. By a dozen instructions on x86-64 and aarch64, and elsewhere
// (or with TG_UCONTEXT) by ucontext, which asks the system for the mask of signals each time.
#pragma once
#include <cstddef>
#include <cstdint>

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(TG_UCONTEXT)

namespace tg {
struct Context {
  void *top;  // of its stack, where its registers lie
};
extern "C" void tg_switch(Context *from, const Context *to);

#if defined(__x86_64__)
asm(".text\n.globl tg_switch\n.hidden tg_switch\n.type tg_switch, @function\ntg_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq (%rsi), %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size tg_switch, .-tg_switch\n");
constexpr int SAVED = 8, ENTRY = 6;  // six registers, the address to return to, one to align
#else
asm(".text\n.globl tg_switch\n.hidden tg_switch\n.type tg_switch, %function\ntg_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x2, sp\nstr x2, [x0]\nldr x2, [x1]\nmov sp, x2\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n.size tg_switch, .-tg_switch\n");
constexpr int SAVED = 20, ENTRY = 11;  // ten pairs; x30 is where it returns to
#endif

inline void fresh(Context &c, char *stack, size_t bytes, void (*entry)()) {
  void **top = reinterpret_cast<void **>((uintptr_t)(stack + bytes) & ~uintptr_t{15}) - SAVED;
  for (int i = 0; i < SAVED; ++i) top[i] = nullptr;
  top[ENTRY] = reinterpret_cast<void *>(entry);
  c.top = top;
}
inline void switch_to(Context &from, Context &to) { tg_switch(&from, &to); }
}  // namespace tg

#else
#include <ucontext.h>

namespace tg {
using Context = ucontext_t;
inline void fresh(Context &c, char *stack, size_t bytes, void (*entry)()) {
  getcontext(&c);
  c.uc_stack.ss_sp = stack;
  c.uc_stack.ss_size = bytes;
  c.uc_link = nullptr;
  makecontext(&c, entry, 0);
}
inline void switch_to(Context &from, Context &to) { swapcontext(&from, &to); }
}  // namespace tg
#endif
