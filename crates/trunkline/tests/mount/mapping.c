/* Two processes that map one file count in it by turns: the one makes even numbers odd, the other odd ones even. */

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 4096, TURNS = 2000, SECONDS_MAX = 60 };

static _Atomic unsigned *map(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, LEN) != 0)
        return NULL;
    void *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* Takes its turns. Each maps the file by an open of its own. */
static int take_turns(const char *path, unsigned parity)
{
    _Atomic unsigned *count = map(path);
    if (!count)
        return 1;
    for (unsigned turn = parity; turn < TURNS; turn += 2) {
        while (atomic_load(count) != turn)
            sched_yield();
        atomic_store(count, turn + 1);
    }
    return munmap((void *)count, LEN) != 0;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    alarm(SECONDS_MAX);
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        alarm(SECONDS_MAX);
        _exit(take_turns(argv[1], 1));
    }
    int failed = take_turns(argv[1], 0), status = 0;
    if (waitpid(child, &status, 0) != child || status != 0 || failed)
        return 1;
    printf("%d turns\n", TURNS);
    return 0;
}
