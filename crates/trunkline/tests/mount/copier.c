/* Copies the first 256 MiB of a file with one copy_file_range(2). SIGUSR1 begins it; further ones are handled. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void handle(int signal)
{
    (void)signal;
}

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct sigaction action = { .sa_handler = handle };
    sigset_t set;
    int signal;
    if (argc != 3)
        return 2;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGUSR1, &action, NULL);
    int source = open(argv[1], O_RDONLY), target = open(argv[2], O_WRONLY | O_CREAT, 0644);
    if (source < 0 || target < 0) {
        perror("open");
        return 1;
    }
    say("open");
    sigwait(&set, &signal);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    say("begun");
    ssize_t count = copy_file_range(source, NULL, target, NULL, 256 << 20, 0);
    if (count < 0) {
        printf("copied nothing: %s\n", strerror(errno));
        return 1;
    }
    printf("copied %zd\n", count);
    return 0;
}
