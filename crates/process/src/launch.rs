//! Starts the child: the one place in parlor where memory is shared by hand.
//!
//! `std::process::Command` could do this with `pre_exec`, but it then forks, which copies page
//! tables: starting `/bin/true` took 1.5 times as long as with memory shared until `exec`, which
//! is what `posix_spawn` does (`make bench` has the figure of the day beside a bare spawn).
//! `posix_spawn` in turn cannot ask for a signal at the parent's death, nor say which step failed.
#![expect(
    unsafe_code,
    reason = "clone with shared memory, and the system calls a child may make before exec"
)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Once;

use rustix::io::Errno;
use rustix::process::{Pid, WaitIdOptions};

use crate::confine::{Confinement, Limit, limits};
use crate::oom::Launching;
use crate::program::Program;
use crate::supervise::wait;

/// A child that has been started and not reaped.
pub(crate) struct Child {
    /// Also the number of its process group and session.
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

/// The child's standard streams.
pub(crate) struct Streams<'a> {
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    /// Whether `stdin` is a terminal, to become the child's controlling one.
    pub(crate) terminal: bool,
}

/// Why there is no child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchError {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// What was attempted last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Prepare,
    EnterFolder,
    Execute,
}

/// Room for the child's few calls until the program is loaded.
const STACK_BYTES: usize = 64 * 1024;
/// The exit status of a child that never became the program; reaped here, seen by nobody.
const NEVER_RAN: c_int = 127;
/// Signals are numbered from 1 to this.
const LAST_SIGNAL: c_int = 64;

/// Starts `program` as the leader of a new session and process group.
///
/// Only these three descriptors reach it, and SIGTERM does if the calling *thread* ends, so call
/// this from a thread that lives as long as the server.
pub(crate) fn launch(
    program: &mut Program,
    streams: &Streams<'_>,
    confinement: Confinement,
) -> Result<Child, LaunchError> {
    take_back_sigchld();
    let limits = (confinement == Confinement::Tool).then(limits);
    let launching = Launching::begin(limits.is_some());
    let mut order = Order {
        program,
        streams: [streams.stdin, streams.stdout, streams.stderr].map(|fd| fd.as_raw_fd()),
        terminal: streams.terminal,
        parent: rustix::process::getpid(),
        limits,
        score: launching.way_back(),
        is_score_back: false,
        failure: None,
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let mut pidfd: RawFd = -1;

    let mask = block_all_signals();
    // SAFETY: the child runs `become_program` on a stack of its own, of which we pass the upper
    // end, aligned. CLONE_VFORK suspends this thread until the child has left our memory by exec
    // or exit, so `order`, `stack` and `pidfd` outlive its use of them and nobody else touches
    // them meanwhile.
    let pid = unsafe {
        libc::clone(
            become_program,
            stack.as_mut_ptr().add(stack.capacity()).cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD,
            ptr::from_mut(&mut order).cast(),
            ptr::from_mut(&mut pidfd),
        )
    };
    // Before anything else can set another one; after success it says nothing.
    let refusal = (pid == -1).then(last_errno);
    let (failure, is_score_back) = (order.failure, order.is_score_back);
    launching.end(is_score_back);
    restore_signals(&mask);

    if let Some(errno) = refusal {
        return Err(LaunchError { step: Step::Create, errno });
    }
    let pid = Pid::from_raw(pid).expect("clone gives the parent a positive number or -1");
    // SAFETY: clone succeeded with CLONE_PIDFD, so this is a new descriptor that only we know.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    match failure {
        None => Ok(Child { pid, pidfd }),
        Some(failure) => {
            wait(&pidfd, WaitIdOptions::EXITED);
            Err(failure)
        }
    }
}

/// What the child needs, and where it says why it failed.
struct Order<'a> {
    program: &'a mut Program,
    streams: [RawFd; 3],
    terminal: bool,
    parent: Pid,
    /// How far the program may go; none is as far as we do.
    limits: Option<&'a [Limit]>,
    /// Where our own score goes back to, and what it is.
    score: Option<(RawFd, &'a [u8])>,
    is_score_back: bool,
    failure: Option<LaunchError>,
}

/// The child's life before the program. Shares memory with a suspended parent: system calls only,
/// no allocation, no lock, no panic.
extern "C" fn become_program(order: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a pointer to its `Order` and is suspended while we run.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    give_score_back(order);
    let (step, errno) = match prepare(order) {
        Ok(()) => match enter_folder(order) {
            Ok(()) => (Step::Execute, execute(order.program)),
            Err(errno) => (Step::EnterFolder, errno),
        },
        Err(errno) => (Step::Prepare, errno),
    };
    order.failure = Some(LaunchError { step, errno });
    // SAFETY: ends the child without running any of the parent's exit handlers.
    unsafe { libc::_exit(NEVER_RAN) }
}

/// The parent has the children's score for as short as possible. We have inherited it.
fn give_score_back(order: &mut Order<'_>) {
    if let Some((file, ours)) = order.score {
        // SAFETY: a descriptor that the parent has open, and its text.
        let written = unsafe { libc::pwrite(file, ours.as_ptr().cast(), ours.len(), 0) };
        order.is_score_back = written > 0;
    }
}

/// What the program and all that it starts cannot get rid of.
fn confine(limits: &[Limit]) -> Result<(), Errno> {
    for limit in limits {
        let both = libc::rlimit { rlim_cur: limit.value, rlim_max: limit.value };
        // SAFETY: a plain system call that reads a value of ours.
        check(unsafe { libc::setrlimit(limit.resource, &both) })?;
    }
    // SAFETY: a plain system call; the last three must be zero.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

fn prepare(order: &Order<'_>) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = order.streams;
    // SAFETY: plain system calls on descriptors and constants that we own. Handlers are reset
    // before the mask is, because a handler of the parent's must not run in here. Signals that
    // cannot be reset (KILL, STOP) refuse, which is fine.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        check(libc::setsid())?;
        if order.terminal {
            check(libc::ioctl(stdin, libc::TIOCSCTTY, 0))?;
        }
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM))?;
        if libc::getppid() != order.parent.as_raw_nonzero().get() {
            libc::_exit(NEVER_RAN); // The parent died before the line above could say so.
        }
        check(libc::dup2(stdin, 0))?;
        check(libc::dup2(stdout, 1))?;
        check(libc::dup2(stderr, 2))?;
        // All of our descriptors close by themselves; this is for those we were started with.
        libc::syscall(libc::SYS_close_range, 3, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    order.limits.map_or(Ok(()), confine)
}

fn enter_folder(order: &Order<'_>) -> Result<(), Errno> {
    // SAFETY: a C string that the parent keeps alive.
    unsafe { check(libc::chdir(order.program.folder.as_ptr())) }
}

/// Loads the first candidate that can be loaded; returns only if none can.
fn execute(program: &mut Program) -> Errno {
    let mut denied = false;
    // SAFETY: all pointers are to C strings and null-terminated arrays that the parent keeps
    // alive; an empty signal set is a valid one.
    unsafe {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());

        for candidate in &program.candidates {
            libc::execve(candidate.as_ptr(), program.argv.as_ptr(), program.envp.as_ptr());
            match last_errno() {
                Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => {}
                Errno::ACCESS => denied = true,
                // A script that does not name its interpreter is the shell's, as it is for execvp.
                Errno::NOEXEC => {
                    program.shell_argv.set_second(candidate.as_ptr());
                    libc::execve(
                        program.shell().as_ptr(),
                        program.shell_argv.as_ptr(),
                        program.envp.as_ptr(),
                    );
                    return last_errno();
                }
                errno => return errno,
            }
        }
    }
    if denied { Errno::ACCESS } else { Errno::NOENT }
}

fn check(result: c_int) -> Result<(), Errno> {
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}

fn last_errno() -> Errno {
    // SAFETY: the thread's own error number.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

fn block_all_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are filled by the calls before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: `mask` is what `block_all_signals` replaced.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut());
    }
}

/// A parent that ignores SIGCHLD passes that on, and the kernel then forgets how children ended.
fn take_back_sigchld() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut now = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: reads the action into a place of its size, and sets a default one only where
        // the signal was ignored, so that no handler is lost.
        unsafe {
            if libc::sigaction(libc::SIGCHLD, ptr::null(), now.as_mut_ptr()) == 0
                && now.assume_init().sa_sigaction == libc::SIG_IGN
            {
                libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            }
        }
    });
}
