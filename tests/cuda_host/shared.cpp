// Memory that a block shares: what the kernel declares, and behind it what the launch gives.
//
// Kernels name places in it by 32 bits, from 0 on, as on a GPU. Before each block all of it is no
// number. What is written past its end is seen after the block, or at once, from the next page on.
#include <cstring>

#include "runtime.hpp"

namespace tg {

#pragma GCC visibility push(default)
extern "C" {
char *tg_host_dynamic;
}
#pragma GCC visibility pop

constexpr u32 WINDOW = 1024;  // places of the window that are equal modulo this are in memory, too
// guard page | slack | arrays | slack | guard page; without guards there is no slack, either
static char *declared_before, *declared, *declared_end, *declared_beyond, *declared_base;
static u32 dynamic_base, dynamic_bytes;
static char *arena;  // guard page | dynamic shared memory, at its end | guard page
static size_t arena_bytes;

u32 shared_bytes() { return (u32)(declared_end - declared) + dynamic_bytes; }

char *shared_at(u32 address, u32 bytes, u32 align, const char *what, u32 thread) {
  if (address % align)
    fault_of(thread, ": %s: shared address %u is no multiple of %u", what, address, align);
  const u32 first = (u32)(declared - declared_base), last = (u32)(declared_end - declared_base);
  const u64 end = (u64)address + bytes;
  if (address >= first && end <= last) return declared_base + address;
  if (address >= dynamic_base && end <= (u64)dynamic_base + dynamic_bytes)
    return tg_host_dynamic + (address - dynamic_base);
  fault_of(thread, ": %s: shared address %u is outside the %u bytes that its block shares", what,
           address, shared_bytes());
}

API u32 tg_host_shared_address(const void *pointer) {
  const char *p = (const char *)pointer;
  if (p >= declared && p <= declared_end && declared) return (u32)(p - declared_base);
  if (tg_host_dynamic && p >= tg_host_dynamic && p <= tg_host_dynamic + dynamic_bytes)
    return dynamic_base + (u32)(p - tg_host_dynamic);
  fault("%p is no address of shared memory", pointer);
}

bool share(char *const *arrays, u32 bytes) {
  declared_before = arrays[0], declared = arrays[1];
  declared_end = arrays[2], declared_beyond = arrays[3];
  declared_base = (char *)((uintptr_t)declared / WINDOW * WINDOW);
  dynamic_base = (u32)((declared_end - declared_base + WINDOW - 1) / WINDOW * WINDOW);
  const size_t needed = pages(bytes);
  if (needed > arena_bytes) {
    if (arena) give_back(arena, arena_bytes);
    arena = guarded(needed);
    arena_bytes = arena ? needed : 0;
    if (!arena) return false;
  }
  // At the end of the arena, so that what is past it faults: at the last place that is aligned.
  tg_host_dynamic = bytes ? arena + arena_bytes - (bytes + WINDOW - 1) / WINDOW * WINDOW : nullptr;
  dynamic_bytes = bytes;
  return true;
}

void poison_shared() {
  if (declared) memset(declared, 0xff, (size_t)(declared_beyond - declared));
  char *given = tg_host_dynamic;
  if (given) memset(given, 0xff, (size_t)(arena + arena_bytes - given));
}

// Between the end of what was asked for and the guard page nothing may have changed.
static bool is_poison(const char *p, const char *end) {
  for (; p < end; ++p)
    if (*p != (char)0xff) return false;
  return true;
}

bool is_slack_whole() {
  const char *end = tg_host_dynamic ? tg_host_dynamic + dynamic_bytes : nullptr;
  return is_poison(declared_end, declared_beyond) && (!end || is_poison(end, arena + arena_bytes));
}

bool is_beside_shared(const char *p) {
  if (arena && ((p >= arena - page() && p < arena) ||
                (p >= arena + arena_bytes && p < arena + arena_bytes + page())))
    return true;
  const bool guarded = declared_before != declared;
  return guarded && ((p >= declared_before && p < declared) ||
                     (p >= declared_beyond && p < declared_beyond + (declared - declared_before)));
}
}  // namespace tg
