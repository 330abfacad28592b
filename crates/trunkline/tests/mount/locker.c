/*
 * Locks ranges of a file as the lines of its input say, and prints what came of it:
 *
 *     try w 0 10     F_SETLK of a lock for writing of 10 bytes from 0 on; r is for reading, u releases
 *     wait w 0 10    F_SETLKW
 *     ofd w 0 10     F_OFD_SETLK: a lock of the open file description
 *     test w 0 10    F_GETLK
 *     read 0 5       what is there
 *     write 0 text   writes it there
 *
 * SIGALRM is caught, and ends a wait.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void caught(int number)
{
    (void)number;
}

static void print_errno(void)
{
    const char *name = errno == EAGAIN || errno == EACCES ? "busy" : errno == EINTR ? "interrupted" : strerror(errno);
    printf("%s\n", name);
}

int main(int argc, char **argv)
{
    char line[256], what[16], of[128];
    long long first, len;
    struct sigaction action = {.sa_handler = caught};
    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
    if (fd < 0 || sigaction(SIGALRM, &action, NULL) != 0)
        return 1;
    printf("open\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "read %lld %lld", &first, &len) == 2) {
            ssize_t count = pread(fd, of, len < (long long)sizeof of ? (size_t)len : sizeof of, first);
            if (count < 0)
                print_errno();
            else
                printf("%.*s\n", (int)count, of);
        } else if (sscanf(line, "write %lld %127s", &first, of) == 2) {
            if (pwrite(fd, of, strlen(of), first) < 0)
                print_errno();
            else
                printf("ok\n");
        } else if (sscanf(line, "%15s %1s %lld %lld", what, of, &first, &len) == 4) {
            struct flock lock = {.l_whence = SEEK_SET, .l_start = first, .l_len = len};
            int command = strcmp(what, "try") == 0    ? F_SETLK
                          : strcmp(what, "wait") == 0 ? F_SETLKW
                          : strcmp(what, "ofd") == 0  ? F_OFD_SETLK
                                                      : F_GETLK;
            lock.l_type = of[0] == 'w' ? F_WRLCK : of[0] == 'r' ? F_RDLCK : F_UNLCK;
            if (fcntl(fd, command, &lock) != 0)
                print_errno();
            else if (command != F_GETLK)
                printf("ok\n");
            else if (lock.l_type == F_UNLCK)
                printf("free\n");
            else
                printf("%s %lld %lld\n", lock.l_type == F_WRLCK ? "w" : "r", (long long)lock.l_start,
                       (long long)lock.l_len);
        } else {
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
