//! Starts the child with `clone`; it shares the memory of parlor until `exec`.
//!
//! `std::process::Command` with `pre_exec` would fork, which copies page tables: starting `/bin/true` takes 1.5 times as
//! long as with shared memory, which `posix_spawn` uses as well (`make bench` compares with a bare spawn). But
//! `posix_spawn` cannot request a signal at the parent's death, and does not tell which step failed.
#![expect(
    unsafe_code,
    reason = "clone with shared memory, and the system calls a child may make before exec"
)]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Once;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use crate::confine::Limit;
use crate::oom::LaunchGuard;
use crate::program::Program;
use crate::sandbox::{Plan, enter};

/// A started child that has not been reaped.
pub(crate) struct Child {
    /// Also the id of its process group and session.
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

/// The child's standard streams.
pub(crate) struct Streams<'a> {
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    /// Whether `stdin` is a terminal that becomes the child's controlling terminal.
    pub(crate) terminal: bool,
}

/// Why a child could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchError {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// The steps of starting a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Prepare,
    /// With what the child was doing in order to enter its sandbox.
    Sandbox(&'static str),
    EnterFolder,
    Execute,
}

/// Enough for the few calls of the child until `exec`.
const STACK_BYTES: usize = 64 * 1024;
/// The exit status of a child that failed before `exec`. `launch` reaps it, so nobody sees the status.
const FAILED_STATUS: c_int = 127;
/// Signals have numbers from 1 to this.
pub(crate) const LAST_SIGNAL: c_int = 64;

/// Starts `program` as the leader of a new session and process group, in the sandbox of `plan`.
///
/// The child inherits only the three standard streams. It gets SIGKILL when the calling *thread* ends, so call this from a
/// thread that lives as long as the server.
pub(crate) fn launch(
    program: &mut Program,
    streams: &Streams<'_>,
    limits: Option<&[Limit]>,
    plan: Option<&mut Plan>,
) -> Result<Child, LaunchError> {
    stop_ignoring_sigchld();
    let launch_guard = LaunchGuard::begin(limits.is_some());
    let is_sandboxed = plan.is_some();
    let mut setup = ChildSetup {
        program,
        streams: [streams.stdin, streams.stdout, streams.stderr].map(|fd| fd.as_raw_fd()),
        terminal: streams.terminal,
        parent: rustix::process::getpid(),
        limits,
        plan,
        sandboxed_stack: is_sandboxed.then(ChildStack::new),
        sandboxed_pid: -1,
        score_to_restore: launch_guard.score_to_restore(),
        is_score_restored: false,
        failure: None,
    };
    let mut stack = ChildStack::new();
    let run = if is_sandboxed { run_guide } else { run_child };

    let blocked = SignalsBlocked::new();
    // SAFETY: the child runs `run` on a stack of its own, of which we pass the aligned upper end. CLONE_VFORK suspends this
    // thread until the child has left our memory by exec or exit, so `setup` and `stack` outlive its use of them, and nobody
    // else uses them meanwhile.
    let pid = unsafe {
        libc::clone(
            run,
            stack.top(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            ptr::from_mut(&mut setup).cast(),
        )
    };
    // Read errno before another call changes it.
    let clone_error = (pid == -1).then(last_errno);
    let (failure, is_score_restored) = (setup.failure, setup.is_score_restored);
    let sandboxed_pid = setup.sandboxed_pid;
    launch_guard.end(is_score_restored);
    drop(blocked);

    if let Some(errno) = clone_error {
        return Err(LaunchError { step: Step::Create, errno });
    }
    let mut pid = Pid::from_raw(pid).expect("clone returns a positive number or -1 to the parent");
    if is_sandboxed {
        reap(pid);
        match Pid::from_raw(sandboxed_pid).filter(|_| sandboxed_pid > 0) {
            Some(sandboxed) => pid = sandboxed,
            None => {
                let not_created = LaunchError { step: Step::Create, errno: Errno::AGAIN };
                return Err(failure.unwrap_or(not_created));
            }
        }
    }
    if let Some(failure) = failure {
        reap(pid);
        return Err(failure);
    }
    // The child is not reaped yet, so the number is still its own.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Child { pid, pidfd }),
        Err(errno) => {
            let _ = kill_process_group(pid, Signal::KILL);
            reap(pid);
            Err(LaunchError { step: Step::Create, errno })
        }
    }
}

fn reap(pid: Pid) {
    while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {}
}

/// What the child needs, and where it reports why it failed.
struct ChildSetup<'a> {
    program: &'a mut Program,
    streams: [RawFd; 3],
    terminal: bool,
    parent: Pid,
    /// The limits of the program; `None` leaves it ours.
    limits: Option<&'a [Limit]>,
    plan: Option<&'a mut Plan>,
    sandboxed_stack: Option<ChildStack>,
    /// The pid of the sandboxed child, set by its guide.
    sandboxed_pid: c_int,
    /// The open file of our OOM score, and the score to restore in it.
    score_to_restore: Option<(RawFd, &'a [u8])>,
    is_score_restored: bool,
    failure: Option<LaunchError>,
}

/// Runs in a short-lived process between parlor and a sandboxed child: only the children of a process that enters a pid
/// namespace are in it. The child becomes a child of parlor. The same rules as for [`run_child`] apply.
extern "C" fn run_guide(argument: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a pointer to its `ChildSetup` and is suspended while this runs; this process is suspended while
    // the child runs on the stack that `launch` made for it.
    unsafe {
        let setup = &mut *argument.cast::<ChildSetup<'_>>();
        restore_parent_score(setup);
        setup.score_to_restore = None;
        let entered = setup.plan.as_ref().map_or(Ok(()), |plan| plan.enter_namespaces());
        if let Err(errno) = entered {
            setup.failure = Some(LaunchError { step: Step::Sandbox("enter the namespaces"), errno });
            libc::_exit(FAILED_STATUS);
        }
        let Some(stack) = setup.sandboxed_stack.as_mut().map(ChildStack::top) else {
            libc::_exit(FAILED_STATUS);
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
        let pid = libc::clone(run_child, stack, flags, argument);
        let errno = last_errno();
        let setup = &mut *argument.cast::<ChildSetup<'_>>();
        setup.sandboxed_pid = pid;
        if pid == -1 {
            setup.failure = Some(LaunchError { step: Step::Create, errno });
        }
        libc::_exit(0)
    }
}

/// Runs in the child until `exec`. It shares memory with the suspended parent: system calls only, no allocation, no lock,
/// no panic.
extern "C" fn run_child(setup: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a pointer to its `ChildSetup` and is suspended while this runs.
    let setup = unsafe { &mut *setup.cast::<ChildSetup<'_>>() };
    restore_parent_score(setup);
    let (step, errno) = match ready(setup) {
        Ok(()) => (Step::Execute, execute(setup.program)),
        Err(failed) => failed,
    };
    setup.failure = Some(LaunchError { step, errno });
    // SAFETY: ends the child without running any of the parent's exit handlers.
    unsafe { libc::_exit(FAILED_STATUS) }
}

/// Does everything up to `exec`.
fn ready(setup: &mut ChildSetup<'_>) -> Result<(), (Step, Errno)> {
    prepare(setup).map_err(|errno| (Step::Prepare, errno))?;
    if let Some(plan) = setup.plan.as_deref_mut() {
        enter(plan).map_err(|(action, errno)| (Step::Sandbox(action), errno))?;
    }
    enter_folder(setup).map_err(|errno| (Step::EnterFolder, errno))
}

/// Restores the parent's OOM score as early as possible. The child has inherited the raised score by now.
fn restore_parent_score(setup: &mut ChildSetup<'_>) {
    if let Some((file, score)) = setup.score_to_restore {
        // SAFETY: the descriptor and the text belong to the suspended parent.
        let written = unsafe { libc::pwrite(file, score.as_ptr().cast(), score.len(), 0) };
        setup.is_score_restored = written > 0;
    }
}

/// Sets limits that the program and its descendants cannot lift.
fn confine(limits: &[Limit]) -> Result<(), Errno> {
    for limit in limits {
        let limit_pair = libc::rlimit { rlim_cur: limit.value, rlim_max: limit.value };
        // SAFETY: a plain system call that reads a local value.
        check(unsafe { libc::setrlimit(limit.resource, &limit_pair) })?;
    }
    // SAFETY: a plain system call; the last three must be zero.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}

fn prepare(setup: &ChildSetup<'_>) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = setup.streams;
    // SAFETY: plain system calls on our own descriptors and on constants. Handlers are reset before the mask, because a
    // handler of the parent must not run in the child. KILL and STOP cannot be reset, which is harmless.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        check(libc::setsid())?;
        if setup.terminal {
            check(libc::ioctl(stdin, libc::TIOCSCTTY, 0))?;
        }
        // KILL, because a program may ignore TERM, and nobody is left to repeat the request.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // The parent may have died before the line above took effect. A pid namespace ends with its holder in any case, and
        // hides the parent.
        if setup.plan.is_none() && libc::getppid() != setup.parent.as_raw_nonzero().get() {
            libc::_exit(FAILED_STATUS);
        }
        check(libc::dup2(stdin, 0))?;
        check(libc::dup2(stdout, 1))?;
        check(libc::dup2(stderr, 2))?;
        // Our own descriptors are close-on-exec. This is for those that we inherited.
        libc::syscall(libc::SYS_close_range, 3, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
    setup.limits.map_or(Ok(()), confine)
}

fn enter_folder(setup: &ChildSetup<'_>) -> Result<(), Errno> {
    // SAFETY: a C string that the parent owns.
    unsafe { check(libc::chdir(setup.program.folder.as_ptr())) }
}

/// Executes the first candidate that exists. Returns only on failure.
fn execute(program: &mut Program) -> Errno {
    let mut denied = false;
    // SAFETY: all pointers lead to C strings and null-terminated arrays that the parent owns; an empty signal set is
    // valid.
    unsafe {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());

        for candidate in &program.candidates {
            libc::execve(candidate.as_ptr(), program.argv.as_ptr(), program.envp.as_ptr());
            match last_errno() {
                Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => {}
                Errno::ACCESS => denied = true,
                // The shell runs a script without an interpreter line, as with execvp.
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

pub(crate) fn check(result: c_int) -> Result<(), Errno> {
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}

pub(crate) fn last_errno() -> Errno {
    // SAFETY: points to the errno of this thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// Blocks all signals of this thread while it exists: no handler may run in a child that shares our memory.
pub(crate) struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the calls fill both sets before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the mask that `new` replaced.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut());
        }
    }
}

/// The stack of a child that shares our memory.
pub(crate) struct ChildStack(Vec<u128>);

impl ChildStack {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(STACK_BYTES / size_of::<u128>()))
    }

    /// The aligned upper end: stacks grow downwards.
    pub(crate) fn top(&mut self) -> *mut c_void {
        // SAFETY: the end of the allocation.
        unsafe { self.0.as_mut_ptr().add(self.0.capacity()).cast() }
    }
}

/// If parlor was started with SIGCHLD ignored, restores the default: otherwise the kernel discards exit statuses.
fn stop_ignoring_sigchld() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut now = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: reads the action into a value of its type, and sets the default only if the signal was ignored, so that
        // no handler is lost.
        unsafe {
            if libc::sigaction(libc::SIGCHLD, ptr::null(), now.as_mut_ptr()) == 0
                && now.assume_init().sa_sigaction == libc::SIG_IGN
            {
                libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            }
        }
    });
}
