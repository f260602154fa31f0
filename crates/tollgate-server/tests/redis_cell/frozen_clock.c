// Preloaded into redis-server. The time of day is the nanoseconds since 1970 in the file $TOLLGATE_FROZEN_CLOCK.
// It changes only when the file changes. Redis reads gettimeofday, and redis-cell reads clock_gettime.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *frozen;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("TOLLGATE_FROZEN_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) abort();
    void *mapped = mmap(0, sizeof *frozen, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    close(file);
    frozen = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    // jemalloc calls this before the constructor has run.
    if (clock != CLOCK_REALTIME || !frozen) return syscall(SYS_clock_gettime, clock, time);
    int64_t now = *frozen;
    time->tv_sec = now / 1000000000;
    time->tv_nsec = now % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
