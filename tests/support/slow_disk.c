/* Preloaded into a process: what lies below $SLOW_DISK is synced $SLOW_DISK_MS later, and not at all
   while a file "stuck" lies there. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*sync_call)(int);

static int is_below(int fd, const char *disk) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    size_t length = strlen(disk);
    return strncmp(path, disk, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static void pause_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static void wait_for_disk(int fd) {
    const char *disk = getenv("SLOW_DISK"), *slow = getenv("SLOW_DISK_MS");
    char stuck[4096];
    if (disk == NULL || !is_below(fd, disk)) return;
    if (slow != NULL) pause_ms(atol(slow));
    snprintf(stuck, sizeof stuck, "%s/stuck", disk);
    while (access(stuck, F_OK) == 0) pause_ms(10);
}

int fdatasync(int fd) {
    wait_for_disk(fd);
    return ((sync_call)dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    wait_for_disk(fd);
    return ((sync_call)dlsym(RTLD_NEXT, "fsync"))(fd);
}
