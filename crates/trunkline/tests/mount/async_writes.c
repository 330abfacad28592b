/*
 * Writes a file over and over by asynchronous direct writes, all of them at once, beside two processes that read it by way of
 * the kernel's pages. Each write that has ended is looked for by a read of that kind.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WRITES = 64 };

/* Until it is killed: one reads on and on, the other here and there. */
static void read_beside(const char *path, size_t len, int here_and_there)
{
    int fd = open(path, O_RDONLY);
    char *data = malloc(len);
    unsigned seed = 1;
    for (off_t next = 0;; next++) {
        off_t block = here_and_there ? rand_r(&seed) : next;
        if (pread(fd, data, len, block % WRITES * (off_t)len) < 0)
            _exit(1);
    }
}

static int write_all(aio_context_t context, int fd, char **data, size_t len)
{
    static struct iocb blocks[WRITES];
    struct iocb *all[WRITES];
    memset(blocks, 0, sizeof blocks);
    for (int at = 0; at < WRITES; at++) {
        blocks[at].aio_fildes = fd;
        blocks[at].aio_lio_opcode = IOCB_CMD_PWRITE;
        blocks[at].aio_buf = (unsigned long)data[at];
        blocks[at].aio_nbytes = len;
        blocks[at].aio_offset = at * (off_t)len;
        blocks[at].aio_data = at;
        all[at] = &blocks[at];
    }
    for (long begun = 0, more; begun < WRITES; begun += more)
        if ((more = syscall(SYS_io_submit, context, WRITES - begun, all + begun)) <= 0)
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *path = argv[1];
    size_t len = strtoul(argv[2], NULL, 10);
    int cycles = atoi(argv[3]), fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0644), seen_by = open(path, O_RDONLY);
    char *data[WRITES], *seen = malloc(len);
    struct io_event ended[WRITES];
    aio_context_t context = 0;
    if (fd < 0 || ftruncate(fd, WRITES * (off_t)len) != 0 || syscall(SYS_io_setup, WRITES, &context) != 0)
        return 1;
    for (int reader = 0; reader < 2; reader++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            read_beside(path, len, reader);
        }
    for (int at = 0; at < WRITES; at++)
        if (posix_memalign((void **)&data[at], 4096, len) != 0)
            return 1;
    for (int cycle = 1; cycle <= cycles; cycle++) {
        for (int at = 0; at < WRITES; at++)
            memset(data[at], cycle, len);
        if (!write_all(context, fd, data, len))
            return 1;
        for (long all = 0, count; all < WRITES; all += count) {
            if ((count = syscall(SYS_io_getevents, context, 1, WRITES, ended, NULL)) <= 0)
                return 1;
            for (long at = 0; at < count; at++) {
                off_t block = ended[at].data;
                if (ended[at].res != (long)len || pread(seen_by, seen, len, block * len) != (ssize_t)len)
                    return 1;
                if (memcmp(seen, data[block], len) != 0) {
                    printf("cycle %d: block %ld begins with %d\n", cycle, (long)block, seen[0]);
                    return 3;
                }
            }
        }
    }
    printf("%d cycles\n", cycles);
    return 0;
}
