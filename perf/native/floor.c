/* A server that does for a load of requests.c only what no server can leave out, and answers well.
 *
 *   floor DIRECTORY LENGTH RECORDS_AT RECORDS_SIZE FILES
 *
 * Produce (RECORDS_AT > 0): it receives a request, writes its records to the end of a file, and
 * sends an answer of LENGTH bytes. Fetch (RECORDS_AT 0): it sends RECORDS_SIZE bytes of a file, by
 * sendfile, within an answer of LENGTH bytes. Connection i uses file i modulo FILES. It checks
 * nothing and knows no protocol besides the lengths and the correlation ids. Prints its port.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME (1 << 20)  /* more than a request has */
#define ANSWER 4096      /* more than an answer has besides its records */
#define CORRELATION_AT 8 /* in a request, behind length, key and version */
#define TAIL 3           /* of an answer, behind the records: no tags, three times */

struct connection {
    int fd, number, is_watched;
    char *kept; /* of a request that is not whole yet */
    size_t held;
    char answer[ANSWER];
    size_t sent; /* of the answer, its records included */
    int is_answering;
};

static int poll_fd, file_count, files[64];
static uint64_t ends[64];
static size_t length, records_at, records_size;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static size_t frame_size(const char *frame) {
    uint32_t size;
    memcpy(&size, frame, 4);
    return ntohl(size) + 4ul;
}

static void watch(struct connection *c, int writing) {
    struct epoll_event event = {.events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (c->is_watched == writing) return;
    c->is_watched = writing;
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

/* Send what is left of an answer: bytes before the records, the records, bytes behind them. */
static void push(struct connection *c) {
    size_t total = length + 4, before = records_at ? total : total - TAIL - records_size;
    while (c->is_answering) {
        ssize_t count;
        off_t at = (off_t)(c->sent - before);
        if (c->sent < before)
            count = send(c->fd, c->answer + c->sent, before - c->sent, before < total ? MSG_MORE : 0);
        else if (c->sent < total - TAIL)
            count = sendfile(c->fd, files[c->number % file_count], &at, total - TAIL - c->sent);
        else
            count = send(c->fd, "\0\0\0", total - c->sent, 0);
        if (count < 0) {
            watch(c, errno == EAGAIN);
            return;
        }
        c->sent += (size_t)count;
        c->is_answering = c->sent < total;
    }
    watch(c, 0);
}

static void handle(struct connection *c, const char *frame) {
    uint32_t size = htonl((uint32_t)length);
    int file = c->number % file_count;
    if (records_at) {
        if (pwrite(files[file], frame + records_at, records_size, (off_t)ends[file]) < 0) fail("write");
        ends[file] += records_size;
    }
    memcpy(c->answer, &size, 4);
    memcpy(c->answer + 4, frame + CORRELATION_AT, 4);
    c->sent = 0;
    c->is_answering = 1;
    push(c);
}

static void receive(struct connection *c) {
    static char scratch[FRAME];
    char *into = c->kept ? c->kept : scratch;
    ssize_t count = recv(c->fd, into + c->held, FRAME - c->held, 0);
    size_t at = 0, end;
    if (count <= 0) {
        if (count < 0 && errno == EAGAIN) return;
        close(c->fd);
        free(c->kept);
        free(c);
        return;
    }
    end = c->held + (size_t)count;
    while (end - at >= 4 && end - at >= frame_size(into + at)) {
        handle(c, into + at);
        at += frame_size(into + at);
    }
    c->held = end - at;
    if (!c->held) {
        free(c->kept);
        c->kept = NULL;
    } else if (!c->kept) {
        c->kept = malloc(FRAME);
        if (!c->kept) fail("memory");
        memcpy(c->kept, into + at, c->held);
    } else {
        memmove(c->kept, into + at, c->held);
    }
}

static void open_files(const char *directory) {
    char path[4096], page[4096] = {0};
    for (int i = 0; i < file_count; i++) {
        snprintf(path, sizeof path, "%s/floor-%d", directory, i);
        files[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (files[i] < 0) fail(path);
        for (size_t at = 0; !records_at && at < records_size; at += sizeof page)
            if (write(files[i], page, sizeof page) < 0) fail(path);
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event events[256], listening = {.events = EPOLLIN};
    socklen_t size = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0), accepted = 0, yes = 1;
    if (argc != 6) return 2;
    length = (size_t)atol(argv[2]);
    records_at = (size_t)atol(argv[3]);
    records_size = (size_t)atol(argv[4]);
    file_count = atoi(argv[5]);
    signal(SIGPIPE, SIG_IGN);
    open_files(argv[1]);
    poll_fd = epoll_create1(0);
    if (bind(server, (struct sockaddr *)&address, size) || listen(server, 1024)) fail("listen");
    getsockname(server, (struct sockaddr *)&address, &size);
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, server, &listening);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(poll_fd, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (c) {
                if (events[i].events & EPOLLOUT) push(c);
                if (events[i].events & ~(uint32_t)EPOLLOUT) receive(c);
                continue;
            }
            c = calloc(1, sizeof *c);
            if (!c) fail("memory");
            c->fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);
            if (c->fd < 0) fail("accept");
            c->number = accepted++;
            setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
            epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
        }
    }
}
