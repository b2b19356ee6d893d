// What the parts of the runtime know of each other: the running thread, faults, meetings, memory.
#pragma once
#include <cstddef>
#include <cstdint>

#define API extern "C" __attribute__((visibility("default")))

namespace tg {
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

constexpr u32 WARP = 32, MOST_ITEMS = 1024, BARRIERS = 16;

extern u32 current;  // the running thread of its block
extern u32 items;    // threads of a block
extern bool lazy;    // asynchronous work happens as late as it may, else at once

// ---- faults: the launch ends, and says so

[[noreturn, gnu::format(printf, 1, 2)]] void fault(const char *format, ...);
[[noreturn, gnu::format(printf, 2, 3)]] void fault_of(u32 thread, const char *format, ...);

// ---- meetings of a warp: the last lane that comes works for all

// What lanes hold, by lane, and the lanes that are there.
using Work = void(void *const *held, u32 lanes);
// All lanes of the mask that exist come here. A name is one address: it says which meeting it is.
void meet(u32 mask, const char *what, void *mine, Work *work);
// All 32 lanes come here.
void meet_whole(const char *what, void *mine, Work *work);

// Lets others run before the thread goes on.
void yield();

// ---- shared memory

// `arrays`: a guard page, what the kernel declares, its end, a guard page. False without memory.
bool share(char *const *arrays, u32 dynamic_bytes);
u32 shared_bytes();
void poison_shared();
// Whether nothing was written between the end of it and the next page, since it was poisoned.
bool is_slack_whole();
bool is_beside_shared(const char *address);
// Where an address of the block's window is, from 0 on; a fault of the thread where it is none.
char *shared_at(u32 address, u32 bytes, u32 align, const char *what, u32 thread);

// ---- memory of this process

size_t page();
size_t pages(size_t bytes);  // as bytes, rounded up
// Between pages that nobody may touch; null if there is none.
char *guarded(size_t bytes);
void give_back(char *memory, size_t bytes);

// ---- asynchronous copies

void forget_copies();  // before each block
}  // namespace tg
