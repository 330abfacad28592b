/* A thread begins an asynchronous direct read and ends when it is told to; the process then waits for the data. Each step
 * is begun by a SIGUSR1. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEN = 1 << 20, SECONDS_MAX = 300 };

static aio_context_t context;
static struct iocb request;
static _Atomic pid_t thread_id;

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

static void wait_for_a_signal(void)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigwait(&set, &signal);
}

static void *begin(void *unused)
{
    struct iocb *requests[] = { &request };
    thread_id = (pid_t)syscall(SYS_gettid);
    long begun = syscall(SYS_io_submit, context, 1, requests);
    say(begun == 1 ? "begun" : "not begun");
    wait_for_a_signal();
    return unused;
}

int main(int argc, char **argv)
{
    sigset_t set;
    pthread_t thread;
    struct io_event event;
    void *buffer;
    if (argc != 2)
        return 2;
    alarm(SECONDS_MAX);
    signal(SIGUSR1, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int fd = open(argv[1], O_RDONLY | O_DIRECT);
    if (fd < 0 || posix_memalign(&buffer, 4096, LEN) != 0 || syscall(SYS_io_setup, 1, &context) != 0)
        return 1;
    memset(buffer, 0, LEN);
    request = (struct iocb){ .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)fd,
                             .aio_buf = (__u64)(unsigned long)buffer, .aio_nbytes = LEN };
    say("open");
    wait_for_a_signal();
    if (pthread_create(&thread, NULL, begin, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    /* It is joined a moment before it is gone. */
    while (syscall(SYS_tgkill, getpid(), thread_id, 0) == 0)
        sched_yield();
    say("the thread has ended");
    while (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
        if (errno != EINTR)
            return 1;
    size_t same = 0;
    while (same < LEN && ((char *)buffer)[same] == 'a')
        same++;
    printf("read %lld, %zu as they were written\n", (long long)event.res, same);
    return 0;
}
