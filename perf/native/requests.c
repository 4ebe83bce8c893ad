/* Sends prebuilt requests over many connections, one at a time on each, and times the answers.
 *
 *   requests HOST PORTS SECONDS CONNECTIONS IDLE LENGTH ERROR_AT FRAMES
 *
 * FRAMES is a file of requests, each with its length before it; PORTS has a port for each of them,
 * with commas between. Connection i sends request i modulo their number, with its own correlation
 * ids. Every answer must have LENGTH bytes (0: any) after its
 * length field, the correlation id asked with, and zeros in the two bytes at ERROR_AT (-1: nowhere).
 * IDLE more connections are opened and stay silent. Prints one line of JSON; the first tenth of the
 * time is warm-up and not counted. Exit code 1: something was wrong with an answer.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS 4096
#define PER_OCTAVE 64
#define HEAD 64 /* bytes of an answer that are looked at; the rest is counted */
#define SINK (1 << 20)
#define PATIENCE_MS 10000

struct connection {
    int fd;
    uint32_t correlation;
    char *frame; /* with its length */
    size_t frame_size, sent;
    unsigned char head[HEAD];
    size_t received; /* of the answer, its length field included */
    uint64_t started_ns;
};

static uint64_t histogram[BUCKETS];
static char sink[SINK];
static long answer_length, error_at;
static uint64_t answers, bytes, longest_ns;

static void fail(const char *what) {
    fprintf(stderr, "requests: %s: %s\n", what, errno ? strerror(errno) : "wrong");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint32_t big_endian(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* Buckets of about one per cent: PER_OCTAVE for each power of two of nanoseconds. */
static void observe(uint64_t ns) {
    int octave = 63 - __builtin_clzll(ns | 1);
    uint64_t rest = octave >= 6 ? (ns >> (octave - 6)) & 63 : (ns << (6 - octave)) & 63;
    size_t bucket = (size_t)octave * PER_OCTAVE + rest;
    histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    if (ns > longest_ns) longest_ns = ns;
}

static double quantile_us(double q) {
    uint64_t total = 0, wanted;
    for (size_t i = 0; i < BUCKETS; i++) total += histogram[i];
    wanted = (uint64_t)(q * (double)total);
    for (size_t i = 0; i < BUCKETS; i++) {
        if (wanted < histogram[i]) {
            double base = (double)(1ull << (i / PER_OCTAVE));
            return base * (1 + (double)(i % PER_OCTAVE) / PER_OCTAVE) / 1000;
        }
        wanted -= histogram[i];
    }
    return 0;
}

static int dial(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static void push(struct connection *c) {
    while (c->sent < c->frame_size) {
        ssize_t count = send(c->fd, c->frame + c->sent, c->frame_size - c->sent, MSG_DONTWAIT);
        if (count < 0) {
            if (errno == EAGAIN) return;
            fail("send");
        }
        c->sent += (size_t)count;
    }
}

static void ask(struct connection *c) {
    uint32_t correlation = htonl(++c->correlation);
    memcpy(c->frame + 8, &correlation, 4); /* behind length, key and version */
    c->sent = c->received = 0;
    c->started_ns = now_ns();
    push(c);
}

/* Whether the answer is there, and whole. */
static int pull(struct connection *c) {
    for (;;) {
        size_t length = c->received >= 4 ? big_endian(c->head) + 4ull : HEAD;
        size_t wanted = length - c->received;
        char *into = sink;
        ssize_t count;
        if (c->received < HEAD) {
            into = (char *)c->head + c->received;
            if (wanted > HEAD - c->received) wanted = HEAD - c->received;
        } else if (wanted > SINK) {
            wanted = SINK;
        }
        count = recv(c->fd, into, wanted, MSG_DONTWAIT);
        if (count == 0) fail("the server closed a connection");
        if (count < 0) {
            if (errno == EAGAIN) return 0;
            fail("receive");
        }
        c->received += (size_t)count;
        bytes += (uint64_t)count;
        if (c->received < 4 || c->received < big_endian(c->head) + 4ull) continue;
        errno = 0;
        length = big_endian(c->head);
        if (answer_length && length != (size_t)answer_length) fail("the length of an answer");
        if (big_endian(c->head + 4) != c->correlation) fail("a correlation id");
        if (error_at >= 0 && (c->head[4 + error_at] || c->head[5 + error_at])) fail("an error code");
        return 1;
    }
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *data;
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    data = malloc(*size);
    if (!data || fread(data, 1, *size, file) != *size) fail(path);
    fclose(file);
    return data;
}

int main(int argc, char **argv) {
    size_t size, count = 0, connections, idle;
    char *frames, *starts[1024];
    int ports[1024];
    uint64_t begun, counted_from, until, t;
    struct epoll_event events[256];
    struct connection *all;
    struct rusage usage;
    int poll_fd, is_counting = 0;
    if (argc != 9) {
        fprintf(stderr, "requests HOST PORTS SECONDS CONNECTIONS IDLE LENGTH ERROR_AT FRAMES\n");
        return 2;
    }
    connections = (size_t)atol(argv[4]);
    idle = (size_t)atol(argv[5]);
    answer_length = atol(argv[6]);
    error_at = atol(argv[7]);
    frames = read_file(argv[8], &size);
    for (size_t at = 0; at + 4 <= size && count < 1024; count++) {
        starts[count] = frames + at;
        at += big_endian((unsigned char *)frames + at) + 4;
    }
    for (size_t i = 0; i < count; i++) {
        char *port = strtok(i ? NULL : argv[2], ",");
        if (!port) fail("as many ports as requests");
        ports[i] = atoi(port);
    }
    all = calloc(connections, sizeof *all);
    poll_fd = epoll_create1(0);
    if (!all || !count || poll_fd < 0) fail("set-up");
    for (size_t i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
        char *frame = starts[i % count];
        all[i].frame_size = big_endian((unsigned char *)frame) + 4ull;
        all[i].frame = malloc(all[i].frame_size);
        if (!all[i].frame) fail("memory");
        memcpy(all[i].frame, frame, all[i].frame_size);
        all[i].fd = dial(argv[1], ports[i % count]);
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, all[i].fd, &event)) fail("epoll");
    }
    for (size_t i = 0; i < idle; i++) dial(argv[1], ports[i % count]);
    begun = now_ns();
    until = begun + (uint64_t)(atof(argv[3]) * 1e9);
    counted_from = begun + (until - begun) / 10;
    for (size_t i = 0; i < connections; i++) ask(&all[i]);
    do {
        int ready = epoll_wait(poll_fd, events, 256, PATIENCE_MS);
        errno = 0;
        if (ready == 0) fail("no answer for ten seconds");
        for (int i = 0; i < ready; i++) {
            struct connection *c = &all[events[i].data.u64];
            if (c->sent < c->frame_size) push(c);
            if (!pull(c)) {
                /* a request that did not fit is pushed on when its socket has room */
                struct epoll_event event = {
                    .events = c->sent < c->frame_size ? EPOLLIN | EPOLLOUT : EPOLLIN,
                    .data.u64 = events[i].data.u64};
                if (events[i].events & EPOLLOUT || c->sent < c->frame_size)
                    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
                continue;
            }
            t = now_ns();
            if (is_counting) {
                observe(t - c->started_ns);
                answers++;
            }
            ask(c);
            if (c->sent < c->frame_size) {
                struct epoll_event event = {
                    .events = EPOLLIN | EPOLLOUT, .data.u64 = events[i].data.u64};
                epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
            }
        }
        t = now_ns();
        if (!is_counting && t >= counted_from) {
            is_counting = 1;
            counted_from = t;
            bytes = 0;
            printf("counting\n"); /* so that whoever measures the server begins now, too */
            fflush(stdout);
        }
    } while (t < until);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"answers\": %llu, \"seconds\": %.6f, \"bytes\": %llu, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"p999_us\": %.1f, \"longest_us\": %.1f, \"cpu_s\": %.3f}\n",
           (unsigned long long)answers, (double)(t - counted_from) / 1e9,
           (unsigned long long)bytes, quantile_us(0.5), quantile_us(0.99), quantile_us(0.999),
           (double)longest_ns / 1000,
           (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
               (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
    return 0;
}
