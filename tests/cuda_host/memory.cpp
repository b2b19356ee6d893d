// Memory between pages that nobody may touch, and images that are loaded from memory.
#include <cstdio>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.hpp"

namespace tg {

size_t page() {
  static const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  return bytes;
}

size_t pages(size_t bytes) { return (bytes + page() - 1) / page() * page(); }

char *guarded(size_t bytes) {
  const size_t inner = pages(bytes ? bytes : 1);
  void *whole = mmap(nullptr, inner + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  if (mprotect((char *)whole + page(), inner, PROT_READ | PROT_WRITE)) {
    munmap(whole, inner + 2 * page());
    return nullptr;
  }
  return (char *)whole + page();
}

void give_back(char *memory, size_t bytes) {
  munmap(memory - page(), pages(bytes ? bytes : 1) + 2 * page());
}

API void *tg_host_allocate(size_t bytes) { return guarded(bytes); }

// Nobody may touch these pages; nothing happens where they are no whole ones.
API void tg_host_shut(void *start, size_t bytes) {
  if ((uintptr_t)start % page() == 0 && bytes % page() == 0) mprotect(start, bytes, PROT_NONE);
}

API void tg_host_free(void *memory, size_t bytes) { give_back((char *)memory, bytes); }

// A library from memory; null, and why in `text`, if it is none.
API void *tg_host_open(const char *image, size_t bytes, char *text, size_t room) {
  const int file = memfd_create("tunegrad", MFD_CLOEXEC);
  if (file < 0) {
    snprintf(text, room, "memfd_create fails");
    return nullptr;
  }
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = write(file, image + done, bytes - done);
    if (n <= 0) break;
    done += (size_t)n;
  }
  // The loader takes two libraries of one name for one, and numbers of files come again. So the
  // path to it is written in a way of its own each time: a counter's bits, as slashes and dots.
  static u32 opened;
  char path[128], *at = path + snprintf(path, sizeof path, "/proc/self/");
  for (u32 bits = opened++, k = 0; k < 32; ++k, bits >>= 1) {
    if (bits & 1) *at++ = '.';
    *at++ = '/';
  }
  snprintf(at, sizeof path - (size_t)(at - path), "fd/%d", file);
  void *library = done == bytes ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) snprintf(text, room, "%s", done == bytes ? dlerror() : "no memory to load it");
  close(file);
  return library;
}

API void *tg_host_symbol(void *library, const char *name) { return dlsym(library, name); }
API void tg_host_close(void *library) { dlclose(library); }
}  // namespace tg
