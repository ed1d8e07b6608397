//! The system call filter of a sandbox. It refuses calls that ordinary work does not need and that reach around the other
//! walls: other processes, the kernel itself, set-user-id bits, and Unix sockets, which no namespace hides.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use std::sync::OnceLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::SpawnError;

/// Calls that fail with EPERM, whatever their arguments.
const REFUSED: &[c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // A second way to make system calls, which no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces and mounts.
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    // Files without a path.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Keys.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Parts of the kernel that are known for their holes.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // The whole machine.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// The number of `open_tree_attr` (Linux 6.15), which libc does not name yet. The same on all processors.
const OPEN_TREE_ATTR: c_long = 467;

/// The namespaces that a program must not create.
const NAMESPACES: [c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// `CLONE_NEWTIME`; in `clone` the bit belongs to the exit signal.
const NEW_TIME_NAMESPACE: c_int = 0x80;

/// Requests to a terminal that type into it or take it over.
const TERMINAL_REQUESTS: [libc::Ioctl; 4] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCCONS, libc::TIOCSETD];

/// The number of `fchmodat2` (Linux 6.6), which libc does not name everywhere. The same on all processors.
const FCHMODAT2: c_long = 452;

/// Calls that set the mode of a file, and which argument the mode is.
const MODE_CALLS: &[(c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Calls that create a file if a flag says so, and which arguments the flags and the mode are. Without the flag the mode is
/// whatever the register held before.
const OPEN_CALLS: &[(c_long, u8, u8)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];

/// The flag of `O_TMPFILE` beside `O_DIRECTORY`.
const CREATES_UNNAMED: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// The kinds of Unix socket pairs that can send to an address later: datagrams, raw (which are datagrams) and RDM.
const ADDRESSED_SOCKET_TYPES: [c_int; 3] = [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_RDM];
const SOCKET_TYPE_BITS: u64 = 0xf;

/// The filter as the kernel takes it, compiled once.
pub(super) fn filter() -> Result<&'static [sock_filter], SpawnError> {
    static FILTER: OnceLock<Result<BpfProgram, String>> = OnceLock::new();
    let compiled = FILTER.get_or_init(|| compile().map_err(|error| error.to_string()));
    match compiled {
        Ok(program) => Ok(program),
        Err(error) => Err(SpawnError::Sandbox(format!("cannot compile the system call filter: {error}"))),
    }
}

fn compile() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let one = |condition| SeccompRule::new(vec![condition]);
    let creates = |flag: c_int| one(has_bits(0, flag as u64)?);
    // A child of parlor's would stay a zombie: parlor waits only for those that it started.
    let of_clone = NAMESPACES.into_iter().chain([libc::CLONE_PARENT]);
    rules.insert(libc::SYS_clone, of_clone.map(creates).collect::<Result<_, _>>()?);
    let of_unshare = NAMESPACES.into_iter().chain([NEW_TIME_NAMESPACE]);
    rules.insert(libc::SYS_unshare, of_unshare.map(creates).collect::<Result<_, _>>()?);
    #[allow(clippy::unnecessary_cast, reason = "the C library decides the type of a request")]
    let requests = TERMINAL_REQUESTS.map(|request| one(is(1, request as u64)?));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    // Only the internet, which the network namespace confines, and the list of interfaces.
    let foreign = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(|family| is_not(0, family as u64));
    rules.insert(
        libc::SYS_socket,
        vec![
            SeccompRule::new(foreign.into_iter().collect::<Result<_, _>>()?)?,
            SeccompRule::new(vec![is(0, libc::AF_NETLINK as u64)?, is_not(2, libc::NETLINK_ROUTE as u64)?])?,
        ],
    );
    let mut pairs = vec![one(is_not(0, libc::AF_UNIX as u64)?)?];
    for kind in ADDRESSED_SOCKET_TYPES {
        let masked = SeccompCmpOp::MaskedEq(SOCKET_TYPE_BITS);
        pairs.push(one(SeccompCondition::new(1, SeccompCmpArgLen::Dword, masked, kind as u64)?)?);
    }
    rules.insert(libc::SYS_socketpair, pairs);
    // A program with the set-user-id bit, left in the project, would make any other user of the machine this one.
    for (call, mode) in MODE_CALLS {
        rules.insert(*call, vec![one(has_bits(*mode, u64::from(libc::S_ISUID))?)?]);
    }
    for (call, flags, mode) in OPEN_CALLS {
        let creates = [libc::O_CREAT, CREATES_UNNAMED].map(|flag| {
            SeccompRule::new(vec![has_bits(*flags, flag as u64)?, has_bits(*mode, u64::from(libc::S_ISUID))?])
        });
        rules.insert(*call, creates.into_iter().collect::<Result<_, _>>()?);
    }
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
    let compiled: BpfProgram = filter.try_into()?;
    Ok(prelude().into_iter().chain(compiled).collect())
}

/// Refuses, with ENOSYS, what a program replaces by an older call: `clone3` and `openat2`, whose flags are in memory that no
/// filter reads. On x86-64 also all calls of the x32 ABI, which have other numbers.
///
/// The compiled filter follows, and checks the processor before it allows anything.
fn prelude() -> Vec<sock_filter> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let no_such_call = instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    let mut prelude = vec![instruction(LOAD_NUMBER, 0, 0, 0)];
    for call in [libc::SYS_clone3, libc::SYS_openat2] {
        prelude.extend([instruction(IF_EQUAL, 0, 1, call as u32), no_such_call.clone()]);
    }
    if cfg!(target_arch = "x86_64") {
        const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
        const FIRST_X32_CALL: u32 = 0x4000_0000;
        prelude.extend([instruction(IF_AT_LEAST, 0, 1, FIRST_X32_CALL), no_such_call]);
    }
    prelude
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

fn has_bits(argument: u8, bits: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits)
}
