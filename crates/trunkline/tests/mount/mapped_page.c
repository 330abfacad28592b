/* Looks at the first page of a file through a mapping of its own, now and at each SIGUSR1. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEN = 4096 };

int main(int argc, char **argv)
{
    sigset_t set;
    int signal, fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    const volatile char *at = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || at == MAP_FAILED)
        return 1;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int look = 1;; look++) {
        printf("look %d: %c%c\n", look, at[0], at[LEN - 1]);
        fflush(stdout);
        if (sigwait(&set, &signal) != 0)
            return 1;
    }
}
