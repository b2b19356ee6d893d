// CUDA's blocks and threads on one core: built once, and used by all kernels.
//
//     a thread runs until it waits or ends  ->  the next one that can run, in index order or in one
//     drawn by a seed  ->  nobody can run: the block is done, or a fault says who waits where
//
// One block after the other; a thread gets a stack when it first runs, and who ended hands its own
// on to the next that begins. A fault leaves the threads where they are, and the launch returns its
// text.
#include "runtime.hpp"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "fibers.hpp"

namespace tg {

struct Index {
  u32 x, y, z;
};
#pragma GCC visibility push(default)
extern "C" {
Index tg_host_thread, tg_host_block, tg_host_items, tg_host_groups;
}
#pragma GCC visibility pop

// Threads of a block as a set.
struct Set {
  u64 words[MOST_ITEMS / 64];

  void clear() { memset(words, 0, sizeof words); }
  void add(u32 i) { words[i / 64] |= 1ull << i % 64; }
  void remove(u32 i) { words[i / 64] &= ~(1ull << i % 64); }
  bool has(u32 i) const { return words[i / 64] >> i % 64 & 1; }
  void add_all(const Set &other) {
    for (u32 w = 0; w < MOST_ITEMS / 64; ++w) words[w] |= other.words[w];
  }
  // The first one from i on, around; -1 if there is none.
  int from(u32 i) const {
    constexpr u32 n = MOST_ITEMS / 64;
    const u32 start = i / 64 % n;
    u64 word = words[start] & ~0ull << i % 64;
    for (u32 k = 0; k <= n; ++k) {
      const u32 w = (start + k) % n;
      if (k) word = words[w];
      if (word) return (int)(w * 64 + (u32)__builtin_ctzll(word));
    }
    return -1;
  }
};

struct Fiber {
  Context context;
  char *stack;
};
enum class State : u8 { NEW, STARTED, ENDED };
struct Thread {
  Fiber *fiber;
  const char *waits;  // at what; null if it does not
  u32 mask;           // of the lanes it meets
  u32 barrier;
  State state;
};
struct Meeting {
  const char *what;
  Work *work;
  u32 mask, arrived;
  void *held[WARP];
};
struct Barrier {
  u32 count, arrived;  // none arrived: nobody asks for a count
  Set waiting;
};

u32 current, items;
bool lazy;
static u64 drawn;  // 0: threads in index order
static u32 live;   // threads that have not ended
static Set runnable;
static Thread threads[MOST_ITEMS];
static std::vector<Meeting> warps[MOST_ITEMS / WARP];
static Barrier barriers[BARRIERS];

static std::vector<Fiber *> fibers, free_fibers;
static Context main_context;
static char message[1024];
static std::mutex one_launch;

constexpr size_t STACK = 256 << 10;

static void (*kernel)(void *const *);
static void *const *arguments;

static u32 draw() {
  drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
  return (u32)(drawn >> 32);
}

// ---- faults

static void say(u32 thread, const char *format, va_list list) {
  int n = snprintf(message, sizeof message, "block %u, thread %u", tg_host_block.x, thread);
  vsnprintf(message + n, sizeof message - (size_t)n, format, list);
}

[[noreturn]] static void leave() {
  Context nowhere;
  for (;;) switch_to(nowhere, main_context);
}

void fault(const char *format, ...) {
  char text[800];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fault_of(current, ": %s", text);
}

void fault_of(u32 thread, const char *format, ...) {
  va_list list;
  va_start(list, format);
  say(thread, format, list);
  va_end(list);
  leave();
}

// Nobody can run: the first one that waits, and the first one that it waits for.
[[noreturn]] static void deadlock() {
  u32 who = 0;
  while (threads[who].state == State::ENDED) ++who;
  const Thread &t = threads[who];
  u32 missing = MOST_ITEMS, here = 0, all = 0;
  if (t.mask) {
    const u32 first = who / WARP * WARP;
    for (const Meeting &m : warps[who / WARP])
      if (m.mask == t.mask) here = (u32)__builtin_popcount(m.arrived);
    for (u32 i = first; i < first + WARP && i < items; ++i)
      if (t.mask >> (i - first) & 1) {
        ++all;
        const bool with = threads[i].waits == t.waits && threads[i].mask == t.mask;
        if (!with && missing == MOST_ITEMS) missing = i;
      }
  } else {
    const Barrier &b = barriers[t.barrier];
    here = b.arrived, all = b.count;
    for (u32 i = 0; i < items && missing == MOST_ITEMS; ++i)
      if (!b.waiting.has(i)) missing = i;
  }
  if (missing == MOST_ITEMS)
    fault_of(who, " waits at %s, where %u of %u are, for ever", t.waits, here, all);
  const bool ended = threads[missing].state == State::ENDED;
  fault_of(who, " waits at %s, where %u of %u are, for ever: thread %u %s%s", t.waits, here, all,
           missing, ended ? "has ended" : "waits at ", ended ? "" : threads[missing].waits);
}

// ---- threads take turns

static int next() { return runnable.from(drawn ? draw() % items : (current + 1) % items); }

static void begin();

// There is one for each thread of a block.
static Fiber *take() {
  Fiber *f = free_fibers.back();
  free_fibers.pop_back();
  fresh(f->context, f->stack, STACK, begin);
  return f;
}

// One that begins gets a stack: the one that is given, where the caller runs on it.
static void turn_to(u32 thread, Fiber *given = nullptr) {
  current = thread;
  tg_host_thread.x = thread;
  Thread &t = threads[thread];
  if (t.state == State::NEW) {
    t.state = State::STARTED;
    t.fiber = given ? given : take();
  }
}

// The running thread stays where it is, until it is runnable and its turn comes.
static void pause() {
  const u32 me = current;
  const int other = next();
  if (other < 0) deadlock();
  if ((u32)other == me) return;
  turn_to((u32)other);
  switch_to(threads[me].fiber->context, threads[other].fiber->context);
}

static void wait_at(const char *what, u32 mask, u32 barrier) {
  Thread &t = threads[current];
  t.waits = what, t.mask = mask, t.barrier = barrier;
  runnable.remove(current);
  pause();
  t.waits = nullptr, t.mask = 0;
}

void yield() { pause(); }

// What a stack runs: a thread, and then others that have not begun.
static void begin() {
  for (;;) {
    kernel(arguments);
    Thread &t = threads[current];
    t.state = State::ENDED;
    runnable.remove(current);
    Fiber *mine = t.fiber;
    --live;
    const int other = live ? next() : -1;
    if (other >= 0 && threads[other].state == State::NEW) {
      turn_to((u32)other, mine);
      continue;
    }
    free_fibers.push_back(mine);
    if (!live) leave();
    if (other < 0) deadlock();
    turn_to((u32)other);
    switch_to(mine->context, threads[other].fiber->context);
  }
}

// ---- meetings

static u32 existing(u32 warp) {
  const u32 first = warp * WARP, count = items > first ? items - first : 0;
  return count >= WARP ? ~0u : (1u << count) - 1;
}

static u32 lane() { return current % WARP; }

void meet(u32 mask, const char *what, void *mine, Work *work) {
  const u32 warp = current / WARP;
  mask &= existing(warp);
  if (!(mask >> lane() & 1)) fault("%s: its own lane %u is not in the mask", what, lane());
  std::vector<Meeting> &open = warps[warp];
  size_t at = 0;
  while (at < open.size() && open[at].mask != mask) ++at;
  if (at == open.size()) open.push_back({what, work, mask, 0, {}});
  Meeting &m = open[at];
  if (m.work != work || (m.what != what && strcmp(m.what, what) != 0))
    fault("at %s, while others of its warp are at %s", what, m.what);
  m.held[lane()] = mine;
  m.arrived |= 1u << lane();
  if (m.arrived != mask) {
    wait_at(what, mask, 0);
    return;
  }
  if (m.work) m.work(m.held, mask);
  open.erase(open.begin() + (long)at);
  for (u32 i = 0; i < WARP; ++i)
    if (mask >> i & 1) runnable.add(warp * WARP + i);
}

void meet_whole(const char *what, void *mine, Work *work) {
  if (existing(current / WARP) != ~0u) fault("%s: its warp has less than 32 threads", what);
  meet(~0u, what, mine, work);
}

// ---- barriers of a block

static void come(u32 id, u32 count, bool waits, const char *what) {
  if (id >= BARRIERS) fault("%s: barrier %u, there are %u", what, id, BARRIERS);
  if (count != items && (count % WARP || count > items || !count))
    fault("%s: %u threads, of a block of %u: a multiple of 32", what, count, items);
  Barrier &b = barriers[id];
  if (b.arrived && b.count != count)
    fault("%s: barrier %u for %u threads, others came for %u", what, id, count, b.count);
  b.count = count;
  if (++b.arrived == count) {
    runnable.add_all(b.waiting);
    b.waiting.clear();
    b.arrived = 0;
  } else if (waits) {
    b.waiting.add(current);
    wait_at(what, 0, id);
  }
}

API void tg_host_syncthreads() { come(0, items, true, "__syncthreads"); }
API void tg_host_bar_sync(u32 id, u32 count) { come(id, count, true, "tg_bar_sync"); }
API void tg_host_bar_arrive(u32 id, u32 count) { come(id, count, false, "tg_bar_arrive"); }
API void tg_host_yield() { yield(); }
API void tg_host_trap() { fault("trap"); }

// ---- what the processor refuses: an address that is none, a division by zero

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction before[4];
static thread_local bool inside;
alignas(64) static char signal_stack[128 << 10];

static void refused(int number, siginfo_t *info, void *) {
  if (!inside) {  // another thread's, or the driver's own: what was there before sees it again
    for (int i = 0; i < 4; ++i)
      if (SIGNALS[i] == number) sigaction(number, &before[i], nullptr);
    return;
  }
  const char *address = (const char *)info->si_addr;
  for (const Fiber *f : fibers)
    if (address >= f->stack - page() && address < f->stack)
      fault("its stack of %zu bytes is full", STACK);
  if (number == SIGFPE) fault("a division by zero, or one that overflows");
  if (number == SIGILL) fault("an instruction that this processor does not know");
  if (info->si_code == SI_KERNEL) fault("illegal address, wider than addresses are");
  if (is_beside_shared(address)) fault("illegal address, beside the shared memory of its block");
  fault("illegal address %p", info->si_addr);
}

struct Guarded {
  stack_t old_stack;
  Guarded() {
    stack_t mine = {};
    mine.ss_sp = signal_stack;
    mine.ss_size = sizeof signal_stack;
    sigaltstack(&mine, &old_stack);
    struct sigaction action = {};
    action.sa_sigaction = refused;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 4; ++i) sigaction(SIGNALS[i], &action, &before[i]);
    inside = true;
  }
  ~Guarded() {
    inside = false;
    for (int i = 0; i < 4; ++i) sigaction(SIGNALS[i], &before[i], nullptr);
    sigaltstack(&old_stack, nullptr);
  }
};

// ---- a launch

static bool prepare_fibers() {
  while (fibers.size() < items) {
    char *stack = guarded(STACK);
    if (!stack) return false;
    Fiber *f = new Fiber{};
    f->stack = stack;
    fibers.push_back(f);
  }
  free_fibers.assign(fibers.rbegin(), fibers.rend());
  return true;
}

static void run_block() {
  poison_shared();
  forget_copies();
  runnable.clear();
  for (u32 i = 0; i < items; ++i) {
    threads[i] = Thread{};
    runnable.add(i);
  }
  for (auto &open : warps) open.clear();
  for (Barrier &b : barriers) b = Barrier{};
  live = items;
  current = items - 1;
  turn_to((u32)next());
  switch_to(main_context, threads[current].fiber->context);
}

static u32 greatest_divisor(u32 a, u32 b) { return b ? greatest_divisor(b, a % b) : a; }

struct Job {
  void (*kernel)(void *const *);
  void *const *arguments;
  u32 groups, items;
  u32 dynamic_bytes, lazy;
  u64 seed;  // 0: threads and blocks in index order
  char *declared[4];  // before, first, last, beyond: see Image of runtime.py
};

// 0: it ran. 1: a fault, whose text is in `text`. 2: there is no memory to run it.
API int tg_host_launch(const Job *job, char *text, size_t room) {
  const std::lock_guard<std::mutex> lock(one_launch);
  message[0] = 0;
  kernel = job->kernel, arguments = job->arguments;
  items = job->items, lazy = job->lazy;
  tg_host_groups = {job->groups, 1, 1};
  tg_host_items = {job->items, 1, 1};
  if (!share(job->declared, job->dynamic_bytes) || !prepare_fibers()) return 2;
  drawn = job->seed ? job->seed * 0x9e3779b97f4a7c15ull | 1 : 0;
  // Blocks in an order that a seed draws: every `step`-th, around, from `start` on.
  u32 start = 0, step = 1;
  if (drawn) {
    start = draw() % job->groups;
    step = draw() % job->groups | 1;
    while (greatest_divisor(step, job->groups) != 1) step += 2;
  }
  const Guarded guarded_from_signals;
  for (u64 b = 0; b < job->groups && !message[0]; ++b) {
    tg_host_block = {(u32)((start + b * step) % job->groups), 0, 0};
    run_block();
    if (!message[0] && !is_slack_whole())
      snprintf(message, sizeof message,
               "block %u: it wrote past the end of %u bytes of shared memory", tg_host_block.x,
               shared_bytes());
  }
  snprintf(text, room, "%s", message);
  return message[0] != 0;
}

}  // namespace tg
