// CUDA C++ on a CPU: what stands before a kernel's text. One block after the other, a fiber a thread.
//
//     every thread runs until it waits or ends  ->  next thread, in index order or in one drawn by a
//     seed  ->  once nobody gets any further: a fault that says who waits where
//
// A thread waits at a barrier for its block and at a warp's instruction for its warp; who arrives last
// does the work for all. Shared memory is poisoned before each block: what is not a number shows.
#define TG_HOST 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("tg_shared")))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define TG_SHARED char *tg_shared = tg_job_->dynamic

typedef unsigned int tg_u32;
typedef unsigned short tg_u16;
typedef unsigned long tg_word;

extern "C" {
float expf(float); float logf(float); float sqrtf(float); float tanhf(float); float erff(float);
float sinf(float); float floorf(float); float powf(float, float); float fmaf(float, float, float);
float fabsf(float); double exp(double); double log(double); double sqrt(double); double tanh(double);
double erf(double); double sin(double); double floor(double); double pow(double, double);
double fma(double, double, double); double fabs(double);
extern char __start_tg_shared[] __attribute__((weak)), __stop_tg_shared[] __attribute__((weak));
}

struct tg_dim { tg_u32 x, y, z; };
static tg_dim threadIdx, blockIdx, blockDim, gridDim;

// ---- what a launch is told, and tells

struct tg_job {
  tg_u32 groups, items, shared, seed;  // seed 0: threads in index order
  void **arguments;
  char *dynamic;          // shared memory that the launch gives
  char *stacks;           // stack_bytes for each item
  tg_word stack_bytes;
  char *fault;            // what went wrong, up to 256 letters; empty for nothing
};
static tg_job *tg_job_;

struct tg_fiber { void *stack; bool done; const char *waits; };
struct tg_meeting { tg_u32 arrived, round; const char *what; void *held[1024]; };
static tg_fiber tg_fibers[1024];
static tg_meeting tg_block, tg_warps[32];
static void *tg_main;
static tg_u32 tg_now, tg_drawn, tg_order[1024];
static bool tg_moved;

// ---- fibers

extern "C" void tg_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.type tg_switch, @function\ntg_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size tg_switch, .-tg_switch\n");
static void *tg_fresh(char *top, void (*entry)()) {
  void **at = (void **)(((tg_word)top & ~15ul) - 8);
  *--at = (void *)entry;
  for (int i = 0; i < 6; ++i) *--at = 0;
  return at;
}
#elif defined(__aarch64__)
asm(".text\n.type tg_switch, %function\ntg_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x2, sp\nstr x2, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n.size tg_switch, .-tg_switch\n");
static void *tg_fresh(char *top, void (*entry)()) {
  void **at = (void **)((tg_word)top & ~15ul) - 20;
  for (int i = 0; i < 20; ++i) at[i] = 0;
  at[11] = (void *)entry;  // x30
  return at;
}
#else
#error "cuda-host runs on x86-64 and aarch64"
#endif

static void tg_leave() { tg_switch(&tg_fibers[tg_now].stack, tg_main); }

static void tg_say(const char *text) {
  char *at = tg_job_->fault;
  while (*at) ++at;
  for (; *text && at < tg_job_->fault + 255; ++text) *at++ = *text;
  *at = 0;
}

static void tg_say_number(tg_u32 n) {
  char digits[12];
  int i = 11;
  digits[i] = 0;
  do digits[--i] = '0' + n % 10; while (n /= 10);
  tg_say(digits + i);
}

static void tg_say_place(tg_u32 item) {
  tg_say("block ");
  tg_say_number(blockIdx.x);
  tg_say(", thread ");
  tg_say_number(item);
}

[[noreturn]] static void tg_fail(const char *text) {
  tg_say_place(tg_now);
  tg_say(": ");
  tg_say(text);
  for (;;) tg_leave();
}

// ---- waiting for others

static void tg_meet(tg_meeting &m, tg_u32 size, tg_u32 me, const char *what, void *mine,
                    void (*work)(void **)) {
  if (m.arrived && m.what != what) tg_fail("its warp or block is at different instructions");
  m.what = what;
  m.held[me] = mine;
  tg_moved = true;
  if (++m.arrived == size) {
    if (work) work(m.held);
    m.arrived = 0;
    ++m.round;
    return;
  }
  for (tg_u32 round = m.round; m.round == round;) {
    tg_fibers[tg_now].waits = what;
    tg_leave();
  }
}

static void __syncthreads() {
  tg_meet(tg_block, blockDim.x, tg_now, "__syncthreads", 0, 0);
}

static void tg_warp(const char *what, void *mine, void (*work)(void **)) {
  tg_meet(tg_warps[tg_now / 32], 32, tg_now % 32, what, mine, work);
}

// ---- numbers

template <class To, class From> static inline To tg_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To y;
  __builtin_memcpy(&y, &x, sizeof x);
  return y;
}
static inline float __uint_as_float(tg_u32 x) { return tg_bits<float>(x); }
static inline tg_u32 __float_as_uint(float x) { return tg_bits<tg_u32>(x); }
static inline float tg_from_bf16(tg_u16 x) { return tg_bits<float>((tg_u32)x << 16); }
static inline tg_u16 tg_to_bf16(float x) {
  tg_u32 b = tg_bits<tg_u32>(x);
  return x != x ? 0x7fc0 : (tg_u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
static inline float tg_from_f16(tg_u16 x) {
  tg_u32 m = x & 0x7fff, s = (tg_u32)(x & 0x8000) << 16, n = (m << 13) + 0x38000000u;
  tg_u32 small = tg_bits<tg_u32>((float)m * 0x1p-24f), special = n + 0x38000000u;
  return tg_bits<float>(s | (m < 0x400 ? small : m < 0x7c00 ? n : special));
}
static inline tg_u16 tg_to_f16(float x) {
  tg_u32 u = tg_bits<tg_u32>(x), a = u & 0x7fffffff, s = u >> 16 & 0x8000;
  tg_u32 n = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  tg_u32 small = tg_bits<tg_u32>(tg_bits<float>(a) + 0.5f) - 0x3f000000u;
  tg_u32 special = a > 0x7f800000u ? 0x7e00 : 0x7c00;
  return (tg_u16)(s | (a < 0x38800000u ? small : a < 0x47800000u ? n : special));
}

// ---- matrix units: see MatrixUnit for who holds what

template <class D, class R, int HIGHS, int STEPS, int PACKED, class Widen>
static void tg_host_mma_(D *d, const R *a, const R *b, Widen element) {
  struct Mine { D *d; const R *a, *b; Widen element; } mine = {d, a, b, element};
  static const char what[] = "a product of its warp";  // of each unit its own
  tg_warp(what, &mine, [](void **held) {
    for (int item = 0; item < 32; ++item) {
      Mine &to = *(Mine *)held[item];
      for (int h = 0; h < HIGHS; ++h)
        for (int p = 0; p < 2; ++p) {
          D sum = to.d[2 * h + p];  // of row item / 4, column 2 * (item % 4) + p
          for (int s = 0; s < STEPS; ++s)
            for (int c = 0; c < 4; ++c)
              for (int j = 0; j < PACKED; ++j) {
                Mine &row = *(Mine *)held[item / 4 * 4 + c];
                Mine &column = *(Mine *)held[(2 * (item % 4) + p) * 4 + c];
                sum += to.element(row.a[s * HIGHS + h], j) * to.element(column.b[s], j);
              }
          to.d[2 * h + p] = sum;
        }
    }
  });
}
template <class D, class R, int HIGHS, int STEPS, int PACKED>
static void tg_host_mma(D *d, const R *a, const R *b, float (*widen)(tg_u16)) {
  struct Halves {
    float (*widen)(tg_u16);
    float operator()(R x, int j) const { return widen((tg_u16)(x >> 16 * j)); }
  };
  tg_host_mma_<D, R, HIGHS, STEPS, PACKED>(d, a, b, Halves{widen});
}
template <class D, class R, int HIGHS, int STEPS, int PACKED>
static void tg_host_mma(D *d, const R *a, const R *b) {
  struct Whole { R operator()(R x, int) const { return x; } };
  tg_host_mma_<D, R, HIGHS, STEPS, PACKED>(d, a, b, Whole{});
}

// ---- a launch

static void (*tg_kernel)(void **);
static void tg_entry() {
  tg_kernel(tg_job_->arguments);
  tg_fibers[tg_now].done = true;
  tg_moved = true;
  for (;;) tg_leave();
}

static tg_u32 tg_draw() { return (tg_drawn = tg_drawn * 1664525u + 1013904223u) >> 8; }

static void tg_poison(char *at, char *end) {
  if (at && at != end) __builtin_memset(at, 0xff, end - at);
}

static bool tg_run_block() {
  tg_u32 items = blockDim.x, left = items;
  tg_poison(__start_tg_shared, __stop_tg_shared);
  tg_poison(tg_job_->dynamic, tg_job_->dynamic + tg_job_->shared);
  tg_block.arrived = 0;
  for (tg_u32 w = 0; w < 32; ++w) tg_warps[w].arrived = 0;
  for (tg_u32 i = 0; i < items; ++i) {
    char *top = tg_job_->stacks + (i + 1) * tg_job_->stack_bytes;
    tg_fibers[i].stack = tg_fresh(top, tg_entry);
    tg_fibers[i].done = false;
    tg_order[i] = i;
  }
  while (left) {
    tg_moved = false;
    if (tg_job_->seed)
      for (tg_u32 i = items - 1; i; --i) {
        tg_u32 j = tg_draw() % (i + 1), other = tg_order[j];
        tg_order[j] = tg_order[i];
        tg_order[i] = other;
      }
    for (tg_u32 n = 0; n < items; ++n) {
      tg_now = tg_order[n];
      if (tg_fibers[tg_now].done) continue;
      threadIdx.x = tg_now;
      tg_switch(&tg_main, tg_fibers[tg_now].stack);
      if (tg_job_->fault[0]) return false;
      left -= tg_fibers[tg_now].done;
    }
    if (left && !tg_moved) {
      tg_u32 waiting = 0;
      while (tg_fibers[waiting].done) ++waiting;
      tg_say_place(waiting);
      tg_say(" waits at ");
      tg_say(tg_fibers[waiting].waits);
      tg_say(", which ");
      tg_say_number(items - left);
      tg_say(" threads of its block have ended without, or others do not reach");
      return false;
    }
  }
  return true;
}

template <int... I> struct tg_ints {};
template <int N, int... I> struct tg_count : tg_count<N - 1, N - 1, I...> {};
template <int... I> struct tg_count<0, I...> { typedef tg_ints<I...> type; };
template <class... A, int... I>
static inline void tg_apply(void (*kernel)(A...), void **a, tg_ints<I...>) { kernel((A)a[I]...); }
template <class... A> static inline void tg_call(void (*kernel)(A...), void **a) {
  tg_apply(kernel, a, typename tg_count<sizeof...(A)>::type());
}

static void tg_launch(tg_job *job) {
  tg_job_ = job;
  tg_drawn = job->seed;
  job->fault[0] = 0;
  gridDim = {job->groups, 1, 1};
  blockDim = {job->items, 1, 1};
  for (blockIdx = {0, 0, 0}; blockIdx.x < job->groups; ++blockIdx.x)
    if (!tg_run_block()) return;
}
#define TG_ENTRY(name)                                                     \
  extern "C" __attribute__((visibility("default"))) void tg_start(tg_job *job) { \
    tg_kernel = [](void **a) { tg_call(name, a); };                        \
    tg_launch(job);                                                        \
  }
