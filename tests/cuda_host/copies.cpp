// Copies from global to shared memory that a thread starts and waits for: cp.async.
//
// Eager, a copy happens when it is started; lazy, when its thread waits for it, which is the last
// moment that is allowed. A kernel that waits too little, or writes over what is still read, is
// wrong in one of the two.
#include <cstring>
#include <vector>

#include "runtime.hpp"

namespace tg {

struct Copy {
  char *to;
  const char *from;
  u32 bytes, given;  // zeros beyond what is given
};
struct Copies {
  std::vector<Copy> started;
  std::vector<size_t> groups;  // ends of groups that were committed, in `started`
};
static Copies copies[MOST_ITEMS];
static bool any;

void forget_copies() {
  if (any)
    for (Copies &c : copies) c.started.clear(), c.groups.clear();
  any = false;
}

static void run(const Copy &c) {
  // What is not given is not touched.
  if (c.given) memcpy(c.to, c.from, c.given);
  memset(c.to + c.given, 0, c.bytes - c.given);
}

// All but the last groups, so many of them.
static void finish(Copies &mine, size_t left) {
  if (mine.groups.size() <= left) return;
  const size_t done = mine.groups.size() - left, end = mine.groups[done - 1];
  for (size_t i = 0; i < end; ++i) run(mine.started[i]);
  mine.started.erase(mine.started.begin(), mine.started.begin() + (long)end);
  mine.groups.erase(mine.groups.begin(), mine.groups.begin() + (long)done);
  for (size_t &g : mine.groups) g -= end;
}

API void tg_host_cp_async(u32 to, const void *from, u32 bytes, int given, const char *what) {
  char *place = shared_at(to, bytes, bytes, what, current);
  if ((uintptr_t)from % bytes)
    fault("%s: global address %p is no multiple of %u", what, from, bytes);
  if (given < 0 || (u32)given > bytes) fault("%s: %d bytes of %u", what, given, bytes);
  const Copy copy = {place, (const char *)from, bytes, (u32)given};
  if (!lazy) return run(copy);
  any = true;
  copies[current].started.push_back(copy);
}

API void tg_host_cp_commit() {
  if (!lazy) return;
  any = true;
  copies[current].groups.push_back(copies[current].started.size());
}

API void tg_host_cp_wait(u32 left) { finish(copies[current], left); }

API void tg_host_cp_wait_all() {
  tg_host_cp_commit();
  finish(copies[current], 0);
}
}  // namespace tg
