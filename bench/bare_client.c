/* The barest client: epoll, recv, read the clock. It keeps nothing and understands nothing.

   bare_client HOST PORT STREAMS < REQUEST: sends the request on every connection, reads until each
   response has ended, prints the CPU nanoseconds from the first send on. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long long clock_ns(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

int main(int argc, char **argv) {
  static char request[1 << 16], data[1 << 18];
  if (argc != 4) return 2;
  int streams = atoi(argv[3]), one = 1, left = streams;
  ssize_t length = read(0, request, sizeof request);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
  inet_pton(AF_INET, argv[1], &to.sin_addr);
  int *socks = malloc(sizeof(int) * streams), epoll = epoll_create1(0);
  for (int k = 0; k < streams; k++) {
    socks[k] = socket(AF_INET, SOCK_STREAM, 0);
    if (socks[k] < 0) die("socket");
    setsockopt(socks[k], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(socks[k], (struct sockaddr *)&to, sizeof to)) die("connect");
    fcntl(socks[k], F_SETFL, O_NONBLOCK);
    struct epoll_event want = {.events = EPOLLIN, .data.fd = socks[k]};
    epoll_ctl(epoll, EPOLL_CTL_ADD, socks[k], &want);
  }
  long long before = clock_ns(CLOCK_PROCESS_CPUTIME_ID), last = 0;
  for (int k = 0; k < streams; k++)
    if (send(socks[k], request, length, 0) != length) die("send");
  struct epoll_event ready[1024];
  while (left) {
    int count = epoll_wait(epoll, ready, 1024, -1);
    for (int k = 0; k < count; k++) {
      ssize_t got = recv(ready[k].data.fd, data, sizeof data, 0);
      last = clock_ns(CLOCK_MONOTONIC);
      if (got <= 0) die("recv");
      if (got >= 5 && !memcmp(data + got - 5, "0\r\n\r\n", 5)) left--;
    }
  }
  printf("%lld\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before);
  return last == 0;
}
