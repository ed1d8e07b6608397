// Attempts of a hostile program that need system calls. Each prints ESCAPED if it got what a sandbox must refuse.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/kcmp.h>
#include <linux/openat2.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int escaped(int yes) {
    printf(yes ? "ESCAPED\n" : "refused: %s\n", strerror(errno));
    return 0;
}

static int is(const char *name, const char *wanted) { return strcmp(name, wanted) == 0; }

// Runs `child` in a process of its own and tells whether it exited with 0.
static int in_child(int flags) {
    int pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    int status = -1;
    if (pid > 0) waitpid(pid, &status, 0);
    return pid > 0 && status == 0;
}

static struct sockaddr_un unix_address(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    return address;
}

static int fork_many(int wanted) {
    int pids[4096], count = 0;
    while (count < wanted && count < 4096) {
        int pid = fork();
        if (pid == 0) {
            pause();
            _exit(0);
        }
        if (pid < 0) break;
        pids[count++] = pid;
    }
    for (int i = 0; i < count; i++) kill(pids[i], SIGKILL);
    for (int i = 0; i < count; i++) waitpid(pids[i], 0, 0);
    return count == wanted;
}

// Creates the file `suid` by one of the ways to set a mode, and tells whether it has the set-user-id bit.
static int set_user_id(const char *way) {
    const char *name = "suid";
    unlink(name);
    if (is(way, "open")) open(name, O_CREAT | O_RDWR, 04755);
    if (is(way, "openat")) syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_RDWR, 04755);
    if (is(way, "openat2")) {
        struct open_how how = {.flags = O_CREAT | O_RDWR, .mode = 04755};
        syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how);
    }
    if (is(way, "creat")) creat(name, 04755);
    if (is(way, "mknod")) mknod(name, S_IFREG | 04755, 0);
    if (is(way, "tmpfile")) {
        int unnamed = open(".", O_TMPFILE | O_RDWR, 04755);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", unnamed);
        if (unnamed >= 0) linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
    }
    int changed = -1;
    if (strstr(way, "chmod")) changed = open(name, O_CREAT | O_RDWR, 0755);
    if (is(way, "chmod")) chmod(name, 04755);
    if (is(way, "fchmod")) fchmod(changed, 04755);
    if (is(way, "fchmodat")) syscall(SYS_fchmodat, AT_FDCWD, name, 04755);
    if (is(way, "fchmodat2")) syscall(452, AT_FDCWD, name, 04755, 0);
    struct stat found = {0};
    int yes = stat(name, &found) == 0 && (found.st_mode & S_ISUID);
    unlink(name);
    return yes;
}

// Objects of the System V and POSIX kinds for the attempts to find, until the standard input is closed.
static int hold_ipc(int key, const char *name) {
    int memory = shmget(key, 4096, IPC_CREAT | 0600), queue = msgget(key, IPC_CREAT | 0600),
        semaphore = semget(key, 1, IPC_CREAT | 0600);
    mqd_t posix = mq_open(name, O_CREAT | O_RDWR, 0600, 0);
    printf(memory >= 0 && queue >= 0 && semaphore >= 0 && posix >= 0 ? "ready\n" : "failed\n");
    fflush(stdout);
    while (getchar() != EOF) {}
    shmctl(memory, IPC_RMID, 0);
    msgctl(queue, IPC_RMID, 0);
    semctl(semaphore, 0, IPC_RMID);
    mq_unlink(name);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *argument = argc > 2 ? argv[2] : "";
    int pid = strtol(argument, 0, 0);
    if (is(what, "ptrace")) return escaped(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0);
    if (is(what, "kill")) return escaped(kill(pid, 0) == 0);
    if (is(what, "process_vm_readv")) {
        // An address that is not mapped gives EFAULT only to who may read the process.
        char buffer[8];
        struct iovec here = {buffer, sizeof buffer}, there = {(void *)8, 8};
        return escaped(process_vm_readv(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT);
    }
    if (is(what, "pidfd_getfd")) {
        int process = syscall(SYS_pidfd_open, pid, 0);
        return escaped(process >= 0 && syscall(SYS_pidfd_getfd, process, 0, 0) >= 0);
    }
    if (is(what, "io_uring")) {
        struct io_uring_params parameters = {0};
        return escaped(syscall(SYS_io_uring_setup, 4, &parameters) >= 0);
    }
    if (is(what, "unshare_user")) return escaped(unshare(CLONE_NEWUSER) == 0);
    if (is(what, "unshare_mount")) return escaped(unshare(CLONE_NEWNS) == 0);
    if (is(what, "unshare_network")) return escaped(unshare(CLONE_NEWNET) == 0);
    if (is(what, "clone_user")) return escaped(in_child(CLONE_NEWUSER));
    if (is(what, "clone3_user")) {
        struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
        int child = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (child == 0) _exit(0);
        return escaped(child > 0);
    }
    if (is(what, "setns")) {
        int fd = open(argument, O_RDONLY | O_CLOEXEC);
        return escaped(fd >= 0 && setns(fd, 0) == 0);
    }
    if (is(what, "mount")) return escaped(mount("none", argument, "tmpfs", 0, 0) == 0 && umount(argument) == 0);
    if (is(what, "fsopen")) return escaped(syscall(SYS_fsopen, "tmpfs", 0) >= 0);
    if (is(what, "chroot")) return escaped(chroot("/") == 0);
    if (is(what, "keyctl")) return escaped(syscall(SYS_keyctl, 0, -3, 1) >= 0);
    if (is(what, "add_key")) return escaped(syscall(SYS_add_key, "user", "attempt", "x", 1, -2) >= 0);
    if (is(what, "bpf")) {
        // A map of one array entry.
        unsigned attributes[32] = {2, 4, 4, 1};
        return escaped(syscall(SYS_bpf, 0, attributes, sizeof attributes) >= 0);
    }
    if (is(what, "perf")) {
        struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .disabled = 1};
        return escaped(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0) >= 0);
    }
    if (is(what, "userfaultfd")) return escaped(syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY | O_CLOEXEC) >= 0);
    if (is(what, "fanotify")) return escaped(fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY) >= 0);
    if (is(what, "open_by_handle")) {
        char space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
        struct file_handle *handle = (struct file_handle *)space;
        handle->handle_bytes = MAX_HANDLE_SZ;
        int mount_id, folder = open(argument, O_RDONLY | O_DIRECTORY);
        if (name_to_handle_at(AT_FDCWD, argument, handle, &mount_id, 0) != 0) return escaped(0);
        return escaped(open_by_handle_at(folder, handle, O_RDONLY) >= 0);
    }
    if (is(what, "x32_unshare")) {
        errno = 0;
        return escaped(syscall(0x40000000 | 272, CLONE_NEWUSER) == 0);
    }
    if (is(what, "socket")) return escaped(socket(pid, atoi(argv[3]), atoi(argv[4])) >= 0);
    if (is(what, "unix_stream")) {
        struct sockaddr_un address = unix_address(argument);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        return escaped(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    }
    if (is(what, "unix_abstract")) {
        struct sockaddr_un address = unix_address("");
        strncpy(address.sun_path + 1, argument, sizeof address.sun_path - 2);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        socklen_t length = sizeof(sa_family_t) + 1 + strlen(argument);
        return escaped(fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0);
    }
    if (is(what, "unix_pair")) {
        // One half of a pair of datagram sockets can send to any other address.
        struct sockaddr_un address = unix_address(argument);
        int pair[2];
        if (socketpair(AF_UNIX, pid ? pid : SOCK_DGRAM, 0, pair) != 0) return escaped(0);
        return escaped(sendto(pair[0], "x", 1, 0, (struct sockaddr *)&address, sizeof address) == 1);
    }
    if (is(what, "tiocsti")) {
        // Types into a terminal of its own. In some kernels only a setting forbids it.
        int terminal = open("/dev/ptmx", O_RDWR);
        grantpt(terminal);
        unlockpt(terminal);
        setsid();
        int other = open(ptsname(terminal), O_RDWR);
        ioctl(other, TIOCSCTTY, 0);
        return escaped(ioctl(other, TIOCSTI, "x") == 0);
    }
    if (is(what, "set_user_id")) return escaped(set_user_id(argument));
    if (is(what, "clone_parent")) {
        // A child of the process that started the sandbox, which does not know of it.
        int child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (child == 0) _exit(0);
        return escaped(child > 0);
    }
    if (is(what, "hold_ipc")) return hold_ipc(pid, argv[3]);
    if (is(what, "shared_memory")) return escaped(shmget(pid, 0, 0) >= 0);
    if (is(what, "message_queue")) return escaped(msgget(pid, 0) >= 0);
    if (is(what, "semaphore")) return escaped(semget(pid, 0, 0) >= 0);
    if (is(what, "posix_queue")) return escaped(mq_open(argument, O_RDONLY) >= 0);
    if (is(what, "owner_of_signals")) {
        int ends[2];
        return escaped(pipe(ends) == 0 && fcntl(ends[0], F_SETOWN, pid) == 0);
    }
    if (is(what, "limit")) {
        struct rlimit limit;
        return escaped(prlimit(pid, RLIMIT_NOFILE, 0, &limit) == 0);
    }
    if (is(what, "processors")) {
        cpu_set_t set;
        return escaped(sched_getaffinity(pid, sizeof set, &set) == 0 && sched_setaffinity(pid, sizeof set, &set) == 0);
    }
    if (is(what, "kcmp")) return escaped(syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, 0, 0) >= 0);
    if (is(what, "process_vm_writev")) {
        char buffer[8];
        struct iovec here = {buffer, sizeof buffer}, there = {(void *)8, 8};
        return escaped(process_vm_writev(pid, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT);
    }
    if (is(what, "unshare")) return escaped(unshare(pid) == 0);
    if (is(what, "mount_setattr")) {
        struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_RDONLY};
        return escaped(syscall(SYS_mount_setattr, AT_FDCWD, argument, 0, &attributes, sizeof attributes) == 0);
    }
    if (is(what, "open_tree")) return escaped(syscall(SYS_open_tree, AT_FDCWD, argument, OPEN_TREE_CLONE) >= 0);
    if (is(what, "request_key")) {
        return escaped(syscall(SYS_request_key, "user", "attempt", 0, -3) >= 0 || errno == ENOKEY);
    }
    if (is(what, "kernel_log")) {
        char buffer[64];
        return escaped(syscall(SYS_syslog, 3, buffer, sizeof buffer) >= 0);
    }
    if (is(what, "exchange")) {
        // In one step, so that no name is ever missing; and back.
        return escaped(renameat2(AT_FDCWD, argument, AT_FDCWD, argv[3], RENAME_EXCHANGE) == 0 &&
                       renameat2(AT_FDCWD, argument, AT_FDCWD, argv[3], RENAME_EXCHANGE) == 0);
    }
    if (is(what, "dangling_terminal")) {
        // The terminal of the user, if the program has one.
        int terminal = open("/dev/tty", O_RDWR);
        return escaped(terminal >= 0);
    }
    if (is(what, "no_new_privileges")) return escaped(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    if (is(what, "memfd_exec")) {
        // A program without a path writes outside.
        char buffer[65536];
        int from = open("/usr/bin/touch", O_RDONLY), to = memfd_create("x", 0);
        for (ssize_t count; (count = read(from, buffer, sizeof buffer)) > 0;)
            if (write(to, buffer, count) != count) return escaped(0);
        char *arguments[] = {"touch", (char *)argument, 0}, *none[] = {0};
        fexecve(to, arguments, none);
        return escaped(0);
    }
    if (is(what, "fork_bomb")) return escaped(fork_many(pid));
    fprintf(stderr, "unknown attempt %s\n", what);
    return 2;
}
