//! The attempts of a hostile command, as data. `{…}` in a script is a path or number of the [`World`](crate::world::World).

/// How an attempt shows that it got out.
#[derive(Clone, Copy)]
pub(crate) enum Proof {
    /// It prints ESCAPED.
    Prints,
    /// This file exists afterwards, seen from outside.
    Creates(&'static str),
    /// A process with this text in its arguments runs afterwards, seen from outside.
    LeavesProcess(&'static str),
}

/// What the same command does in mode full, so that a broken attempt is noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InFull {
    Succeeds,
    /// It needs root, or a part that not every kernel has.
    MayFail,
    /// It would harm the machine, mode full forbids it too, or there is nothing to get out of.
    NotTried,
}

pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) script: &'static str,
    pub(crate) proof: Proof,
    pub(crate) in_full: InFull,
}

const fn prints(name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, script, proof: Proof::Prints, in_full: InFull::Succeeds }
}

const fn creates(name: &'static str, script: &'static str, path: &'static str) -> Attempt {
    Attempt { name, script, proof: Proof::Creates(path), in_full: InFull::Succeeds }
}

const fn may_fail(attempt: Attempt) -> Attempt {
    Attempt { in_full: InFull::MayFail, ..attempt }
}

const fn not_in_full(attempt: Attempt) -> Attempt {
    Attempt { in_full: InFull::NotTried, ..attempt }
}

/// Ways to a secret, beside its own path; `world::SECRETS` are tried too.
pub(crate) const READS: &[Attempt] = &[
    prints("through a symlink", "ln -sf {home}/.ssh/id link; grep -q hidden link && echo ESCAPED"),
    prints("through a link to the folder", "ln -sfn {home}/.ssh dir; grep -q hidden dir/id && echo ESCAPED"),
    prints("by a relative path", "grep -q hidden ../.ssh/id && echo ESCAPED"),
    prints(
        "through the root of its own process",
        "grep -q hidden /proc/self/root{home}/.ssh/id && echo ESCAPED",
    ),
    prints(
        "through the working folder of its own process",
        "grep -q hidden /proc/self/cwd/../.ssh/id && echo ESCAPED",
    ),
    may_fail(prints(
        "through the root of the first process",
        "grep -q hidden /proc/1/root{home}/.ssh/id && echo ESCAPED",
    )),
    prints(
        "through the root of another process",
        "grep -q hidden /proc/{victim}/root{home}/.ssh/id && echo ESCAPED",
    ),
    prints(
        "through the working folder of another process",
        "grep -q hidden /proc/{victim}/cwd/.ssh/id && echo ESCAPED",
    ),
    prints("by a hard link", "ln -f {home}/.ssh/id hard; grep -q hidden hard && echo ESCAPED"),
    prints(
        "by an archive of the home",
        "tar cf - -C {home} .ssh 2>/dev/null | tar tf - | grep -q /id && echo ESCAPED",
    ),
    prints("by a search of the home", "grep -rqs 'hidden text' {home}/.ssh {home}/.aws && echo ESCAPED"),
    prints(
        "relative to an open folder",
        "python3 -c \"import os; f=os.open('..', os.O_RDONLY); print(os.read(os.open('.ssh/id', 0, dir_fd=f), 6)==b'hidden' and 'ESCAPED')\"",
    ),
    prints(
        "the environment of a process",
        "tr '\\0' '\\n' < /proc/{victim}/environ | grep -q VICTIM_SECRET && echo ESCAPED",
    ),
    prints(
        "the environment of all processes",
        "cat /proc/[0-9]*/environ 2>/dev/null | grep -aq VICTIM_SECRET && echo ESCAPED",
    ),
    prints(
        "the arguments of other processes",
        "cat /proc/[0-9]*/cmdline 2>/dev/null | grep -aq '86400.7[5]' && echo ESCAPED",
    ),
    prints("the open files of a process", "grep -q hidden /proc/{victim}/fd/0 && echo ESCAPED"),
    may_fail(prints(
        "a raw disk",
        "for d in /dev/vd* /dev/sd* /dev/nvme* /dev/dm-*; do head -c 1 $d 2>/dev/null | grep -qc . && echo ESCAPED; done",
    )),
    may_fail(prints("the passwords of the system", "grep -q : /etc/shadow && echo ESCAPED")),
    may_fail(prints(
        "the keys of this machine",
        "cat /etc/ssh/*_key 2>/dev/null | grep -q PRIVATE && echo ESCAPED",
    )),
    may_fail(prints("memory of the machine", "head -c 1 /dev/mem 2>/dev/null | grep -c . && echo ESCAPED")),
    may_fail(prints("files by handle", "{attempt} open_by_handle {home}")),
    may_fail(prints(
        "a device file of its own",
        "mknod disk b 254 0 && head -c 1 disk > /dev/null && echo ESCAPED; rm -f disk",
    )),
    not_in_full(prints("a descriptor that parlor inherited", "cat <&9 | grep -q hidden && echo ESCAPED")),
    not_in_full(prints("any other descriptor", "ls /proc/$$/fd | grep -v '^[012]$' && echo ESCAPED")),
    may_fail(prints(
        "the memory of the kernel",
        "head -c 1 /proc/kcore 2>/dev/null | grep -qc . && echo ESCAPED",
    )),
    may_fail(prints("the log of the kernel", "{attempt} kernel_log; head -c 1 /dev/kmsg && echo ESCAPED")),
    may_fail(prints(
        "devices beside those of every program",
        "for d in kmsg mem kvm fuse net/tun uinput input/event0 loop-control mapper/control vhost-vsock; do [ -e /dev/$d ] && echo ESCAPED $d; done",
    )),
    prints(
        "a copy of the home in an archive of the root",
        "tar cf - -C /proc/self/root {home}/.aws 2>/dev/null | grep -aq 'hidden text' && echo ESCAPED",
    ),
    prints(
        "a secret that is moved into the project",
        "mv {home}/.netrc moved 2>/dev/null; grep -q hidden moved && echo ESCAPED; mv moved {home}/.netrc",
    ),
    prints(
        "the secret behind a mount, by its inode",
        "find {home} -inum $(stat -c %i {home}/.ssh/id 2>/dev/null || echo 0) 2>/dev/null | grep -q . && echo ESCAPED",
    ),
];

pub(crate) const WRITES: &[Attempt] = &[
    creates("a file in the home", "touch {home}/new", "{home}/new"),
    creates("through a symlink", "ln -sfn {home} up; touch up/through", "{home}/through"),
    creates("by a relative path", "touch ../relative", "{home}/relative"),
    creates("through the root of its own process", "touch /proc/self/root{home}/rooted", "{home}/rooted"),
    creates("through another process", "touch /proc/{victim}/cwd/other", "{home}/other"),
    creates(
        "a start-up file of the shell",
        "cp /etc/hostname {home}/.profile.new && mv {home}/.profile.new {home}/.zshenv",
        "{home}/.zshenv",
    ),
    prints("a hard link to a file outside", "ln -f {home}/notes linked && echo x >> linked && echo ESCAPED"),
    prints("the content of a file outside", "echo x >> {home}/notes && echo ESCAPED"),
    prints("the mode of a file outside", "chmod 600 {home}/notes && echo ESCAPED"),
    prints("the time of a file outside", "touch -d 2001-01-01 {home}/notes && echo ESCAPED"),
    prints("a longer file outside", "truncate -s +1 {home}/notes && echo ESCAPED"),
    prints(
        "an attribute of a file outside",
        "python3 -c \"import os; os.setxattr('{home}/notes','user.x',b'1'); print('ESCAPED')\"",
    ),
    creates("shared memory", "touch /dev/shm/{mark}", "/dev/shm/{mark}"),
    creates("the folder of temporary files", "touch /tmp/{mark}", "/tmp/{mark}"),
    creates("the other folder of temporary files", "touch /var/tmp/{mark}", "/var/tmp/{mark}"),
    creates(
        "the move of the project",
        "cd / && mv {project} {home}/moved && cp -r {home}/moved {project}",
        "{home}/moved",
    ),
    creates("the move of a file out of the project", "echo x > a && mv a {home}/out", "{home}/out"),
    creates("a program without a path", "{attempt} memfd_exec {home}/memfd", "{home}/memfd"),
    creates(
        "a link that changes between check and use",
        "python3 -c \"
import os
os.makedirs('inside', exist_ok=True)
for i in range(300):
    for target in ('inside', '{home}'):
        try:
            os.symlink(target, 'new'); os.replace('new', 'swap'); open('swap/raced', 'w').close()
        except OSError: pass
\"",
        "{home}/raced",
    ),
    creates("the state of parlor", "touch {state}/rules.toml", "{state}/rules.toml"),
    not_in_full(prints(
        "a setting of the kernel",
        "(echo x > /proc/sys/kernel/core_pattern) 2>/dev/null && echo ESCAPED",
    )),
    not_in_full(prints(
        "a request to the kernel",
        "(echo x > /proc/sysrq-trigger) 2>/dev/null && echo ESCAPED",
    )),
    not_in_full(prints(
        "a file of the system",
        "(echo x >> /etc/hosts || echo x >> /usr/bin/x) 2>/dev/null && echo ESCAPED",
    )),
    not_in_full(prints("a writable system", "mount -o remount,rw / && echo ESCAPED")),
    not_in_full(prints(
        "the mount over a secret",
        "umount {home}/.ssh && echo ESCAPED; umount -l {home}/.ssh && echo ESCAPED",
    )),
    may_fail(prints("a mount of its own", "{attempt} mount {home}/project")),
    may_fail(prints("a bind mount", "mkdir -p b && mount --bind {home} b && echo ESCAPED; umount b")),
    may_fail(prints("the new calls to mount", "{attempt} fsopen")),
    may_fail(prints("another root folder", "{attempt} chroot")),
    may_fail(prints("a writable mount instead of a read-only one", "{attempt} mount_setattr /")),
    may_fail(prints("a copy of a mount", "{attempt} open_tree /")),
    not_in_full(prints(
        "any writable folder of the system",
        "find / -maxdepth 2 -xdev -type d -writable 2>/dev/null | grep -v -e ^/proc -e ^/tmp -e ^/var/tmp -e ^/dev/shm && echo ESCAPED",
    )),
    not_in_full(prints(
        "any writable file of the kernel",
        "find /proc/sys /sys -maxdepth 4 -type f -writable 2>/dev/null | grep . && echo ESCAPED",
    )),
    not_in_full(prints(
        "a format of programs that the kernel starts",
        "(echo ':x:E::x::/bin/sh:' > /proc/sys/fs/binfmt_misc/register) 2>/dev/null && echo ESCAPED",
    )),
    not_in_full(prints(
        "a later turn when memory is short",
        "(echo -1000 > /proc/self/oom_score_adj) 2>/dev/null && echo ESCAPED",
    )),
    may_fail(prints(
        "another cgroup",
        "for f in $(find /sys/fs/cgroup -name cgroup.procs 2>/dev/null | head -3); do echo $$ > $f && echo ESCAPED; done",
    )),
    not_in_full(prints(
        "a cgroup of its own",
        "mkdir /sys/fs/cgroup/{mark} && echo ESCAPED; rmdir /sys/fs/cgroup/{mark}",
    )),
    prints(
        "a file outside through the descriptor of a folder",
        "python3 -c \"
import os
up = os.open('..', os.O_RDONLY); os.open('notes', os.O_WRONLY, dir_fd=up); print('ESCAPED')\"",
    ),
    creates(
        "a folder that changes into a link between check and use",
        "python3 -c \"
import os, shutil, threading
stop = []
def swap():
    while not stop:
        try: os.mkdir('s'); os.rmdir('s'); os.symlink('{home}', 's'); os.unlink('s')
        except OSError: shutil.rmtree('s', True)
swapper = threading.Thread(target=swap); swapper.start()
for i in range(3000):
    try: os.close(os.open('s/swapped', os.O_CREAT | os.O_WRONLY))
    except OSError: pass
stop.append(1); swapper.join()
if os.path.islink('s'): os.unlink('s')
shutil.rmtree('s', True)
os.symlink('{home}', 's'); open('s/swapped', 'w')\"; rm -f s",
        "{home}/swapped",
    ),
    prints("set-user-id by chmod", "{attempt} set_user_id chmod"),
    prints("set-user-id by fchmod", "{attempt} set_user_id fchmod"),
    prints("set-user-id by fchmodat", "{attempt} set_user_id fchmodat"),
    may_fail(prints("set-user-id by fchmodat2", "{attempt} set_user_id fchmodat2")),
    prints("set-user-id by open", "{attempt} set_user_id open"),
    prints("set-user-id by openat", "{attempt} set_user_id openat"),
    prints("set-user-id by openat2", "{attempt} set_user_id openat2"),
    prints("set-user-id by creat", "{attempt} set_user_id creat"),
    prints("set-user-id by mknod", "{attempt} set_user_id mknod"),
    may_fail(prints("set-user-id by a file without a name", "{attempt} set_user_id tmpfile")),
    prints(
        "a set-user-id shell for other users",
        "cp /bin/sh s; chmod 4755 s; [ -u s ] && echo ESCAPED; rm -f s",
    ),
];

pub(crate) const PROCESSES: &[Attempt] = &[
    prints("a signal to another process", "{attempt} kill {victim}"),
    prints("a signal to parlor", "{attempt} kill {parent}"),
    prints("ptrace", "{attempt} ptrace {victim}"),
    prints("the memory of another process", "{attempt} process_vm_readv {victim}"),
    prints(
        "the memory file of another process",
        "python3 -c \"open('/proc/{victim}/mem','rb'); print('ESCAPED')\"",
    ),
    prints("a descriptor of another process", "{attempt} pidfd_getfd {victim}"),
    may_fail(prints(
        "the namespace of another process",
        "{attempt} setns /proc/{victim}/ns/user; {attempt} setns /proc/{victim}/ns/mnt",
    )),
    may_fail(prints("the namespace of its first process", "{attempt} setns /proc/1/ns/mnt")),
    Attempt {
        name: "a daemon in a session of its own",
        script: "setsid sh -c 'echo > /tmp/{mark}-up; exec sleep 86411.5' > /dev/null 2>&1 < /dev/null & while ! [ -e /tmp/{mark}-up ]; do :; done",
        proof: Proof::LeavesProcess("86411.5"),
        in_full: InFull::Succeeds,
    },
    Attempt {
        name: "a daemon that forks twice and ignores signals",
        script: "(trap '' HUP TERM INT; setsid nohup sh -c '(echo > /tmp/{mark}-twice; exec sleep 86412.5) &' > /dev/null 2>&1 < /dev/null &) & while ! [ -e /tmp/{mark}-twice ]; do :; done",
        proof: Proof::LeavesProcess("86412.5"),
        in_full: InFull::Succeeds,
    },
    may_fail(prints("a fork bomb", "{attempt} fork_bomb 1200")),
    not_in_full(prints(
        "a file of any size",
        "head -c 21000000 /dev/zero > big 2>/dev/null && echo ESCAPED; rm -f big",
    )),
    not_in_full(prints(
        "memory of any size as files",
        "[ $(df -k --output=size /tmp | tail -1) -gt 1100000 ] && echo ESCAPED; [ $(df -k --output=size /dev/shm | tail -1) -gt 1100000 ] && echo ESCAPED",
    )),
    not_in_full(prints("new privileges", "{attempt} no_new_privileges")),
    not_in_full(prints(
        "a set-user-id program",
        "cp /usr/bin/id suid && chown 65534 suid 2>/dev/null; chmod u+s suid; [ $(./suid -u) = $(id -u) ] || echo ESCAPED",
    )),
    not_in_full(prints(
        "capabilities",
        "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo ESCAPED; grep -q 'CapBnd:.*[1-9a-f]' /proc/self/status && echo ESCAPED",
    )),
    may_fail(prints("keys typed into a terminal", "{attempt} tiocsti")),
    not_in_full(prints("the terminal of the user", "{attempt} dangling_terminal")),
    prints("a child of parlor's", "{attempt} clone_parent"),
    prints("signals of input and output to another process", "{attempt} owner_of_signals {victim}"),
    prints("the limits of another process", "{attempt} limit {victim}"),
    prints("the processors of another process", "{attempt} processors {victim}"),
    prints("the priority of another process", "renice -n 5 -p {victim} && echo ESCAPED"),
    prints("what another process has open", "{attempt} kcmp {victim}"),
    prints("a write to the memory of another process", "{attempt} process_vm_writev {victim}"),
    prints("a signal by the tool", "kill -CONT {victim} && echo ESCAPED"),
    not_in_full(prints(
        "the memory of its first process, which has all rights in the namespaces",
        "python3 -c \"open('/proc/1/mem','r+b'); print('ESCAPED')\"; {attempt} process_vm_writev 1; {attempt} ptrace 1",
    )),
    not_in_full(prints("the end of its first process", "kill -9 1; sleep 0; [ -d /proc/1 ] || echo ESCAPED")),
    prints("shared memory of System V", "{attempt} shared_memory {key}"),
    prints("a message queue of System V", "{attempt} message_queue {key}"),
    prints("a semaphore of System V", "{attempt} semaphore {key}"),
    prints("a message queue of POSIX", "{attempt} posix_queue /{mark}"),
    prints(
        "the number of other processes",
        "[ $(ls -d /proc/[0-9]* | wc -l) -gt 20 ] && echo ESCAPED; kill -0 {victim} 2>/dev/null && echo ESCAPED",
    ),
];

pub(crate) const KERNEL: &[Attempt] = &[
    may_fail(prints("io_uring", "{attempt} io_uring")),
    may_fail(prints("a user namespace by unshare", "{attempt} unshare_user")),
    may_fail(prints("a user namespace by the tool", "unshare -Ur true && echo ESCAPED")),
    may_fail(prints("a user namespace by clone", "{attempt} clone_user")),
    may_fail(prints("a user namespace by clone3", "{attempt} clone3_user")),
    may_fail(prints("a user namespace by the x32 call", "{attempt} x32_unshare")),
    may_fail(prints("a mount namespace", "{attempt} unshare_mount")),
    may_fail(prints("a network namespace", "{attempt} unshare_network")),
    may_fail(prints("a process namespace", "{attempt} unshare 0x20000000")),
    may_fail(prints("an IPC namespace", "{attempt} unshare 0x08000000")),
    may_fail(prints("a host name of its own", "{attempt} unshare 0x04000000")),
    may_fail(prints("a cgroup namespace", "{attempt} unshare 0x02000000")),
    may_fail(prints("a time namespace", "{attempt} unshare 0x00000080")),
    not_in_full(prints("another host name", "hostname {mark} && echo ESCAPED")),
    not_in_full(prints("another time", "date -s @1 && echo ESCAPED")),
    may_fail(prints("a key of somebody else", "{attempt} request_key")),
    may_fail(prints("the keyring", "{attempt} keyctl")),
    may_fail(prints("a new key", "{attempt} add_key")),
    may_fail(prints("bpf", "{attempt} bpf")),
    may_fail(prints("perf events", "{attempt} perf")),
    may_fail(prints("userfaultfd", "{attempt} userfaultfd")),
    may_fail(prints("fanotify", "{attempt} fanotify")),
];

pub(crate) const SOCKETS: &[Attempt] = &[
    prints("a Unix socket in the home, as of an agent for keys", "{attempt} unix_stream {home}/agent.sock"),
    prints("a Unix socket in the project", "{attempt} unix_stream {project}/near.sock"),
    prints("a Unix socket in /tmp, as of X11", "{attempt} unix_stream /tmp/{mark}.sock"),
    prints("a Unix socket of parlor", "{attempt} unix_stream {state}/run/peer.sock"),
    prints("a Unix socket by Python", "python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect('{home}/agent.sock'); print('ESCAPED')\""),
    prints("a datagram socket, as of the journal", "python3 -c \"import socket; s=socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', '{home}/datagram.sock'); print('ESCAPED')\""),
    prints("a datagram from one of a pair", "{attempt} unix_pair {home}/datagram.sock"),
    prints("an abstract socket, as of the session bus", "{attempt} unix_abstract {mark}"),
    may_fail(prints("the socket of docker", "{attempt} unix_stream /var/run/docker.sock")),
    may_fail(prints("the socket of the system bus", "{attempt} unix_stream /run/dbus/system_bus_socket")),
    prints("a loopback port, as of parlor", "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port})); print('ESCAPED')\""),
    prints("a loopback port by another address", "python3 -c \"import socket; socket.create_connection(('127.9.9.9', {port})); print('ESCAPED')\""),
    may_fail(prints("a loopback port over IPv6", "python3 -c \"import socket; socket.create_connection(('::ffff:127.0.0.1', {port})); print('ESCAPED')\"")),
    prints(
        "a datagram to loopback",
        "python3 -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect(('127.0.0.1', {udp_port})); s.send(b'x')
print(s.recv(1) == b'y' and 'ESCAPED')\"",
    ),
    may_fail(prints("an interface other than loopback", "grep -v -e lo: -e '|' /proc/net/dev | grep -q : && echo ESCAPED")),
    may_fail(prints("a name server", "python3 -c \"import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 53)); print('ESCAPED')\"")),
    not_in_full(prints("the address of a cloud's metadata", "python3 -c \"import socket; socket.create_connection(('169.254.169.254', 80), 2); print('ESCAPED')\"")),
    not_in_full(prints("a name by the C library", "getent hosts example.com && echo ESCAPED")),
    not_in_full(prints("a broadcast", "python3 -c \"import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b'x', ('255.255.255.255', 9)); print('ESCAPED')\"")),
    may_fail(prints("the bus of the user's session", "[ -S \"${DBUS_SESSION_BUS_ADDRESS#unix:path=}\" ] && echo ESCAPED; ls /run/user/*/bus 2>/dev/null && echo ESCAPED")),
    may_fail(prints("a netlink socket for the audit", "{attempt} socket 16 3 9")),
    may_fail(prints("a netlink socket for the sockets of others", "{attempt} socket 16 3 4")),
    may_fail(prints("a socket to the hypervisor", "{attempt} socket 40 1 0")),
    may_fail(prints("a raw socket", "{attempt} socket 17 3 768")),
    may_fail(prints("a socket of the kernel's ciphers", "{attempt} socket 38 5 0")),
    may_fail(prints("a netlink socket for device events", "{attempt} socket 16 3 15")),
    may_fail(prints("a raw internet socket", "{attempt} socket 2 3 1")),
];

/// In a project with a repository.
pub(crate) const REPOSITORY: &[Attempt] = &[
    creates("a hook", "echo evil > .git/hooks/pre-commit", "{project}/.git/hooks/pre-commit"),
    prints(
        "core.fsmonitor by git",
        "git config core.fsmonitor evil && echo ESCAPED; git config --unset core.fsmonitor",
    ),
    prints(
        "core.hooksPath in the file",
        "echo '[core] hooksPath = /x' >> .git/config && echo ESCAPED; git config --unset core.hooksPath",
    ),
    prints("another file in place of the settings", "cp .git/config c && mv c .git/config && echo ESCAPED"),
    prints("no settings", "cp .git/config c && rm .git/config && echo ESCAPED; cp c .git/config"),
    prints("a hard link to the settings", "ln .git/config l && echo ESCAPED; rm -f l"),
    prints("hooks exchanged in one step", "mkdir -p evil && {attempt} exchange .git/hooks evil; rmdir evil"),
    prints("settings exchanged in one step", "echo > e; {attempt} exchange .git/config e; rm -f e"),
    prints("a repository exchanged in one step", "mkdir -p evil && {attempt} exchange .git evil; rmdir evil"),
    prints(
        "a hook through the root of its own process",
        "echo x > /proc/self/root{project}/.git/hooks/x && echo ESCAPED",
    ),
    prints("hooks by a link", "ln -sfn .git/hooks h; echo x > h/pre-push && echo ESCAPED; rm -f h"),
    prints("the mode of the settings", "chmod 666 .git/config && echo ESCAPED"),
    prints(
        "a longer file of settings",
        "truncate -s +1 .git/config && echo ESCAPED; truncate -s -1 .git/config",
    ),
    prints(
        "settings by the lock of git",
        "git config --replace-all core.pager evil && echo ESCAPED; git config --unset core.pager",
    ),
    creates("a moved repository", "mv .git elsewhere && cp -r elsewhere .git", "{project}/elsewhere"),
    creates("moved hooks", "mv .git/hooks .git/h2 && mkdir .git/hooks", "{project}/.git/h2"),
    creates(
        "another common folder",
        "mkdir -p evil && echo ../evil > .git/commondir",
        "{project}/.git/commondir",
    ),
    creates(
        "settings of a worktree",
        "echo '[core] fsmonitor = evil' > .git/config.worktree",
        "{project}/.git/config.worktree",
    ),
    creates("instructions for agents", "mkdir -p .agents && touch .agents/evil", "{project}/.agents/evil"),
    creates(
        "settings of codex that were not there",
        "mkdir -p .codex && touch .codex/config.toml",
        "{project}/.codex",
    ),
    creates(
        "skills of parlor that were not there",
        "mkdir -p .parlor/skills && touch .parlor/skills/evil",
        "{project}/.parlor",
    ),
    creates(
        "the end of protection by a rename of a parent",
        "mv {project} {home}/p2 && mv {home}/p2 {project} && touch {home}/renamed",
        "{home}/renamed",
    ),
];
