//! The process that holds the namespaces of a sandbox.
//!
//! It is the first process of a new pid namespace, and does nothing. When it ends, the kernel kills every process in the
//! namespace, also those that left the process group with `setsid`. It ends when parlor closes a pipe, so nothing in a
//! sandbox outlives parlor. The sandboxed program itself is the second process, and a child of parlor: the first process of a
//! namespace ignores signals, and would have to reap the orphans.
//!
//! The holder runs a program of a few instructions, in a file in memory: a copy of parlor could be read by the sandboxed
//! program, and would take longer to start.
#![expect(unsafe_code, reason = "clone with shared memory, and execveat of a file in memory")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::mem;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::SpawnError;
use crate::launch::{ChildStack, SignalsBlocked, check, last_errno};
use crate::sandbox::enter::raise_loopback;
use crate::supervise::wait;

/// The namespaces of one sandbox. Dropping it kills everything in them.
#[derive(Debug)]
pub(crate) struct NamespaceHolder {
    pidfd: OwnedFd,
    pid: Pid,
    /// The holder ends when nobody has this end open any more.
    _lifeline: OwnedFd,
    /// Keeps the mounts until this is closed. Without it the holder would take them down when it ends, which takes longer
    /// than all else at the end of a command.
    mounts: Option<File>,
}

impl NamespaceHolder {
    /// Creates the namespaces. Only the user and group of this process exist in them.
    pub(crate) fn create(has_own_network: bool) -> Result<Self, SpawnError> {
        let program = program()?;
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::system("open a pipe"))?;
        let mut setup =
            HolderSetup { program: program.as_raw_fd(), stdin: theirs.as_raw_fd(), failure: None };
        let mut stack = ChildStack::new();
        let mut pidfd: RawFd = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        let blocked = SignalsBlocked::new();
        // SAFETY: as in `launch`: CLONE_VFORK suspends this thread until the child has left our memory, so `setup`, `stack`
        // and `pidfd` outlive its use of them.
        let pid = unsafe {
            libc::clone(
                run_holder,
                stack.top(),
                flags | namespaces(has_own_network),
                ptr::from_mut(&mut setup).cast(),
                ptr::from_mut(&mut pidfd),
            )
        };
        let error = if pid == -1 { Some(last_errno()) } else { None };
        drop(blocked);
        if let Some(errno) = error {
            return Err(SpawnError::Sandbox(format!("{NEEDS_NAMESPACES}: {errno}")));
        }
        let pid = Pid::from_raw(pid).expect("clone returns a positive number or -1 to the parent");
        // SAFETY: clone succeeded with CLONE_PIDFD, so this is a new descriptor that nobody else owns.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let mounts = File::open(format!("/proc/{}/ns/mnt", pid.as_raw_nonzero())).ok();
        let holder = Self { pidfd, pid, _lifeline: ours, mounts };
        if let Some(errno) = setup.failure {
            return Err(SpawnError::Sandbox(format!("cannot run a program in memory: {errno}")));
        }
        holder.map_ids().map_err(|error| SpawnError::Sandbox(format!("{NEEDS_NAMESPACES}: {error}")))?;
        Ok(holder)
    }

    /// Enters the namespaces. For a process with its own `fs` and one thread, such as a child before `exec`.
    pub(crate) fn enter(&self, has_own_network: bool) -> Result<(), Errno> {
        // SAFETY: a plain system call on our own descriptor.
        check(unsafe { libc::setns(self.pidfd.as_raw_fd(), namespaces(has_own_network)) })
    }

    /// Listens on the loopback of the network namespace, from outside.
    pub(crate) fn listen(&self, port: u16) -> Result<TcpListener, SpawnError> {
        let mut setup = ListenSetup { pidfd: self.pidfd.as_raw_fd(), port, listener: Err(Errno::AGAIN) };
        let mut stack = ChildStack::new();
        let blocked = SignalsBlocked::new();
        // With CLONE_FILES the socket that the child opens is ours.
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: as in `create`.
        let pid = unsafe { libc::clone(run_listen, stack.top(), flags, ptr::from_mut(&mut setup).cast()) };
        drop(blocked);
        if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) {
            let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED));
        }
        match setup.listener {
            // SAFETY: the child has opened this descriptor for us, and nobody else has it.
            Ok(socket) => Ok(unsafe { TcpListener::from_raw_fd(socket) }),
            Err(errno) => {
                Err(SpawnError::Sandbox(format!("cannot listen in the network of the sandbox: {errno}")))
            }
        }
    }

    /// Kills everything in the namespaces and waits until it has ended. The sandboxed program must have been reaped before.
    pub(crate) fn end(self) {
        self.kill();
        wait(&self.pidfd, WaitIdOptions::EXITED);
    }

    /// The mounts of the sandbox; to drop them may block for some milliseconds.
    pub(crate) fn take_mounts(&mut self) -> Option<File> {
        self.mounts.take()
    }

    /// A descriptor that becomes readable when everything in the namespaces has ended.
    pub(crate) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Kills everything in the namespaces, without waiting for it.
    pub(crate) fn kill(&self) {
        // An error means that the holder has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Makes the user and the group of this process exist in the namespace, under the same numbers.
    fn map_ids(&self) -> std::io::Result<()> {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let folder = format!("/proc/{}", self.pid.as_raw_nonzero());
        let write = |name: &str, text: String| {
            File::options().write(true).open(format!("{folder}/{name}"))?.write_all(text.as_bytes())
        };
        // Without it the kernel does not let a user map a group.
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))
    }
}

impl Drop for NamespaceHolder {
    /// Kills everything in the namespaces. Does not wait: the holder is only gone when the sandboxed program was reaped.
    fn drop(&mut self) {
        self.kill();
        // Reaps it if it has ended already.
        let _ = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// The namespaces of a sandbox as flags.
fn namespaces(has_own_network: bool) -> c_int {
    let own_network = if has_own_network { libc::CLONE_NEWNET } else { 0 };
    libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | own_network
}

const NEEDS_NAMESPACES: &str = "user namespaces are not available (see sysctl kernel.unprivileged_userns_clone, \
     kernel.apparmor_restrict_unprivileged_userns and user.max_user_namespaces)";

struct HolderSetup {
    program: RawFd,
    stdin: RawFd,
    failure: Option<Errno>,
}

/// Runs in the holder until `exec`. It shares memory with the suspended parent: system calls only.
extern "C" fn run_holder(setup: *mut c_void) -> c_int {
    // SAFETY: `create` passes a pointer to its `HolderSetup` and is suspended while this runs. All calls are plain system
    // calls on our own descriptors and on constants. SIGCHLD stays ignored after exec, so the kernel reaps the orphans.
    unsafe {
        let setup = &mut *setup.cast::<HolderSetup>();
        for signal in 1..=crate::launch::LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::setsid();
        let argv: [*const c_char; 2] = [NAME.as_ptr(), ptr::null()];
        let envp: [*const c_char; 1] = [ptr::null()];
        if libc::dup2(setup.stdin, 0) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_close_range, 1, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0
        {
            libc::syscall(
                libc::SYS_execveat,
                setup.program,
                c"".as_ptr(),
                argv.as_ptr(),
                envp.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        setup.failure = Some(last_errno());
        libc::_exit(1)
    }
}

struct ListenSetup {
    pidfd: RawFd,
    port: u16,
    listener: Result<RawFd, Errno>,
}

/// Runs in a short-lived process that enters the network namespace. It shares memory with the suspended parent: system
/// calls only.
extern "C" fn run_listen(setup: *mut c_void) -> c_int {
    // SAFETY: `listen` passes a pointer to its `ListenSetup` and is suspended while this runs.
    unsafe {
        let setup = &mut *setup.cast::<ListenSetup>();
        setup.listener = open_listener(setup.pidfd, setup.port);
        libc::_exit(0)
    }
}

fn open_listener(pidfd: RawFd, port: u16) -> Result<RawFd, Errno> {
    const BACKLOG: c_int = 64;
    // SAFETY: plain system calls on descriptors of ours; an address of zeros is valid, and its size is given.
    unsafe {
        check(libc::setns(pidfd, libc::CLONE_NEWUSER | libc::CLONE_NEWNET))?;
        raise_loopback()?;
        let socket =
            libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        check(socket)?;
        let mut address: libc::sockaddr_in = mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = port.to_be();
        address.sin_addr.s_addr = libc::INADDR_LOOPBACK.to_be();
        let size = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let bound = check(libc::bind(socket, ptr::from_ref(&address).cast(), size));
        let listening = bound.and_then(|()| check(libc::listen(socket, BACKLOG)));
        if let Err(errno) = listening {
            libc::close(socket);
            return Err(errno);
        }
        Ok(socket)
    }
}

const NAME: &CStr = c"parlor-sandbox";

/// The ELF number of this processor, and `read(0, stack, 1); exit_group(0)` in its instructions.
#[cfg(target_arch = "x86_64")]
const MACHINE_CODE: (u16, &[u8]) = (
    62,
    &[
        0x31, 0xc0, // xor eax, eax: read
        0x31, 0xff, // xor edi, edi
        0x48, 0x8d, 0x74, 0x24, 0xf8, // lea rsi, [rsp-8]
        0xba, 0x01, 0x00, 0x00, 0x00, // mov edx, 1
        0x0f, 0x05, // syscall
        0x31, 0xff, // xor edi, edi
        0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, 231: exit_group
        0x0f, 0x05, // syscall
    ],
);

/// The ELF number of this processor, and `read(0, stack, 1); exit_group(0)` in its instructions.
#[cfg(target_arch = "aarch64")]
const MACHINE_CODE: (u16, &[u8]) = (
    183,
    &[
        0x00, 0x00, 0x80, 0xd2, // mov x0, #0
        0xe1, 0x03, 0x00, 0x91, // mov x1, sp
        0x22, 0x00, 0x80, 0xd2, // mov x2, #1
        0xe8, 0x07, 0x80, 0xd2, // mov x8, #63: read
        0x01, 0x00, 0x00, 0xd4, // svc #0
        0x00, 0x00, 0x80, 0xd2, // mov x0, #0
        0xc8, 0x0b, 0x80, 0xd2, // mov x8, #94: exit_group
        0x01, 0x00, 0x00, 0xd4, // svc #0
    ],
);

const HEADER_BYTES: u16 = 64;
const SEGMENT_BYTES: u16 = 56;
const LOAD_ADDRESS: u64 = 0x40_0000;

/// The smallest ELF file with `MACHINE_CODE`: a header, one segment, the code.
fn elf() -> Vec<u8> {
    let (machine, code) = MACHINE_CODE;
    let code_offset = u64::from(HEADER_BYTES + SEGMENT_BYTES);
    let size = code_offset + code.len() as u64;
    // 64 bits, little-endian, ELF version 1.
    let mut file: Vec<u8> = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 9]].concat();
    let executable: u16 = 2;
    file.extend([executable, machine].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1_u32.to_le_bytes());
    let (segments, sections) = (u64::from(HEADER_BYTES), 0);
    file.extend([LOAD_ADDRESS + code_offset, segments, sections].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0_u32.to_le_bytes());
    file.extend([HEADER_BYTES, SEGMENT_BYTES, 1, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    let (load, read_and_execute) = (1_u32, 5_u32);
    file.extend([load, read_and_execute].into_iter().flat_map(u32::to_le_bytes));
    file.extend([0, LOAD_ADDRESS, LOAD_ADDRESS, size, size, 0x1000].into_iter().flat_map(u64::to_le_bytes));
    file.extend(code);
    file
}

/// The holder's program in memory, made once.
fn program() -> Result<&'static OwnedFd, SpawnError> {
    static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    let create = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag, and do not need it.
        let executable = MemfdFlags::from_bits_retain(libc::MFD_EXEC);
        let file = rustix::fs::memfd_create(NAME, flags | executable)
            .or_else(|_| rustix::fs::memfd_create(NAME, flags))?;
        let bytes = elf();
        if rustix::io::write(&file, &bytes)? != bytes.len() {
            return Err(Errno::IO);
        }
        rustix::fs::fcntl_add_seals(
            &file,
            SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
        )?;
        Ok(file)
    };
    PROGRAM
        .get_or_init(create)
        .as_ref()
        .map_err(|errno| SpawnError::System { attempt: "create a file in memory", errno: *errno })
}
