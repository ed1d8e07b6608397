//! Runs in the child between `clone` and `exec`: builds its view of the file tree and gives up its rights for good.
//!
//! The child shares memory with the suspended parent: system calls only, no allocation, no lock, no panic.
#![expect(unsafe_code, reason = "system calls that a child makes before exec")]

use std::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use rustix::io::Errno;

use crate::launch::{check, last_errno};
use crate::sandbox::plan::{MountStep, PathKind, Plan, READ_ONLY};
use crate::sandbox::ruleset::Rules;

/// What the child was doing when it failed.
type Failure = (&'static str, Errno);

/// Enters the sandbox. The caller is in the namespaces already, and has all rights in them.
pub(crate) fn enter(plan: &mut Plan) -> Result<(), Failure> {
    mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None).map_err(at("take the mounts over"))?;
    for tree in &mut plan.trees {
        tree.fd = clone_tree(&tree.source).map_err(at("copy a mount"))?;
        set_attributes(tree.fd, c"", AT_EMPTY_PATH | AT_RECURSIVE, tree.attributes)
            .map_err(at("restrict a mount"))?;
    }
    set_attributes(libc::AT_FDCWD, c"/", AT_RECURSIVE, READ_ONLY)
        .map_err(at("make the file system read-only"))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(c"proc"), c"/proc", Some(c"proc"), flags, None).map_err(at("mount /proc"))?;
    limit_processes(plan).map_err(at("limit the number of processes; as root this needs Linux 6.14"))?;
    set_attributes(libc::AT_FDCWD, c"/proc", 0, READ_ONLY).map_err(at("make /proc read-only"))?;
    let mut empty = None;
    for step in &plan.steps {
        run_step(step, plan, &mut empty)?;
    }
    if plan.has_own_network {
        raise_loopback().map_err(at("start the loopback network"))?;
    }
    if let Some(rules) = &plan.rules {
        restrict(rules, plan).map_err(at("apply the Landlock rules"))?;
    }
    drop_capabilities().map_err(at("drop the capabilities"))?;
    if let Some(rules) = &plan.rules {
        // SAFETY: a plain system call on our own descriptor.
        let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.fd.as_raw_fd(), 0) };
        check_long(result).map_err(at("apply the Landlock rules"))?;
    }
    filter_calls(plan).map_err(at("apply the system call filter"))
}

fn at(action: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| (action, errno)
}

/// `empty` is where the empty folder is mounted already.
fn run_step<'a>(step: &'a MountStep, plan: &Plan, empty: &mut Option<&'a CStr>) -> Result<(), Failure> {
    match step {
        MountStep::Hide(place) => {
            let Some(empty) = empty else {
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_RDONLY;
                *empty = Some(place);
                return mount(Some(c"tmpfs"), place, Some(c"tmpfs"), flags, Some(c"mode=755,size=4k"))
                    .map_err(at("hide a folder"));
            };
            let copy = clone_tree(empty).map_err(at("hide a folder"))?;
            attach(copy, place).map_err(at("hide a folder"))
        }
        MountStep::Empty { at: place, options } => {
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            mount(Some(c"tmpfs"), place, Some(c"tmpfs"), flags, Some(options))
                .map_err(at("mount an empty folder"))
        }
        // SAFETY: C strings that the parent owns.
        MountStep::Folder(place) => existing(check(unsafe { libc::mkdir(place.as_ptr(), 0o755) }))
            .map_err(at("create a folder to mount on")),
        MountStep::File(place) => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            // SAFETY: a C string that the parent owns, and a descriptor that nobody else has.
            unsafe {
                let file = libc::open(place.as_ptr(), flags, 0o644);
                check(file).map_err(at("create a file to mount on"))?;
                libc::close(file);
            }
            Ok(())
        }
        // SAFETY: C strings that the parent owns.
        MountStep::Link { at: place, target } => {
            check(unsafe { libc::symlink(target.as_ptr(), place.as_ptr()) })
                .map_err(at("create a link in /dev"))
        }
        MountStep::Attach { tree, at: place } => {
            let source = plan.trees.get(*tree).map_or(-1, |tree| tree.fd);
            attach(source, place).map_err(at("mount a file or folder"))
        }
        MountStep::Terminals => {
            let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
            let options = c"newinstance,ptmxmode=0666,mode=0620";
            mount(Some(c"devpts"), c"/dev/pts", Some(c"devpts"), flags, Some(options))
                .map_err(at("mount /dev/pts"))
        }
        MountStep::Seal(place) => {
            set_attributes(libc::AT_FDCWD, place, 0, READ_ONLY).map_err(at("make a hidden folder read-only"))
        }
    }
}

fn existing(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::EXIST) { Ok(()) } else { result }
}

const AT_EMPTY_PATH: c_int = libc::AT_EMPTY_PATH;
const AT_RECURSIVE: c_int = libc::AT_RECURSIVE;

fn mount(
    source: Option<&CStr>,
    at: &CStr,
    kind: Option<&CStr>,
    flags: c_ulong,
    options: Option<&CStr>,
) -> Result<(), Errno> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all pointers are null or lead to C strings that outlive the call.
    check(unsafe { libc::mount(pointer(source), at.as_ptr(), pointer(kind), flags, pointer(options).cast()) })
}

/// Copies the mount at `path` with those below it. Returns a descriptor.
fn clone_tree(path: &CStr) -> Result<RawFd, Errno> {
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | (AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW) as u32;
    // SAFETY: a C string that the parent owns.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    check_long(fd)?;
    Ok(fd as RawFd)
}

fn set_attributes(folder: RawFd, path: &CStr, flags: c_int, attributes: u64) -> Result<(), Errno> {
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: a C string and a local value of the given size.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder,
            path.as_ptr(),
            flags,
            ptr::from_ref(&attributes),
            mem::size_of::<libc::mount_attr>(),
        )
    })
}

fn attach(tree: RawFd, at: &CStr) -> Result<(), Errno> {
    // SAFETY: C strings, and a descriptor of ours, which is closed as it is not needed any more.
    unsafe {
        let flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
        let result =
            libc::syscall(libc::SYS_move_mount, tree, c"".as_ptr(), libc::AT_FDCWD, at.as_ptr(), flags);
        let result = check_long(result);
        libc::close(tree);
        result
    }
}

/// Limits the pids of the namespace. The kernel does not apply the resource limit to root.
fn limit_processes(plan: &Plan) -> Result<(), Errno> {
    let Some(limit) = &plan.process_limit else { return Ok(()) };
    // SAFETY: C strings that outlive the calls, and a descriptor that nobody else has.
    let result = unsafe {
        let file = libc::open(c"/proc/sys/kernel/pid_max".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file == -1 {
            Err(last_errno())
        } else {
            let written = libc::write(file, limit.as_ptr().cast(), limit.as_bytes().len());
            let result = if written == -1 { Err(last_errno()) } else { Ok(()) };
            libc::close(file);
            result
        }
    };
    if plan.needs_process_limit { result } else { Ok(()) }
}

/// Starts `lo`, so that programs in the sandbox can talk to each other.
pub(super) fn raise_loopback() -> Result<(), Errno> {
    // SAFETY: a request of all zeros is valid; its name stays terminated by zeros. The calls read and write it while it is
    // alive.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        check(socket)?;
        let mut request: libc::ifreq = mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let result = check(libc::ioctl(socket, libc::SIOCSIFFLAGS as libc::Ioctl, ptr::from_ref(&request)));
        libc::close(socket);
        result
    }
}

/// The argument of `landlock_add_rule`.
#[repr(C, packed)]
struct PathRule {
    allowed: u64,
    folder: c_int,
}

/// Adds the rules of the sandbox.
fn restrict(rules: &Rules, plan: &Plan) -> Result<(), Errno> {
    let set = rules.fd.as_raw_fd();
    add_rule(set, c"/", rules.read)?;
    add_rule(set, c"/dev", rules.devices)?;
    for (path, kind) in &plan.writable {
        let rights = match kind {
            PathKind::Folder => rules.write_folder,
            PathKind::File => rules.write_file,
        };
        add_rule(set, path, rights)?;
    }
    Ok(())
}

fn add_rule(set: RawFd, path: &CStr, allowed: u64) -> Result<(), Errno> {
    const PATH_BENEATH: c_int = 1;
    // SAFETY: a C string and a local value, and a descriptor that nobody else has.
    unsafe {
        let folder = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        check(folder)?;
        let rule = PathRule { allowed, folder };
        let result = libc::syscall(libc::SYS_landlock_add_rule, set, PATH_BENEATH, ptr::from_ref(&rule), 0);
        let result = check_long(result);
        libc::close(folder);
        result
    }
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilitySet {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up all capabilities, and the way back: a program of root gets none either.
fn drop_capabilities() -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    const LAST_CAPABILITY: c_ulong = 63;
    const NO_ROOT: c_ulong = 1 | 1 << 1;
    const NO_SETUID_FIXUP: c_ulong = 1 << 2 | 1 << 3;
    const NO_AMBIENT: c_ulong = 1 << 6 | 1 << 7;
    // SAFETY: plain system calls on constants and local values.
    unsafe {
        check(libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT | NO_SETUID_FIXUP | NO_AMBIENT, 0, 0, 0))?;
        for capability in 0..=LAST_CAPABILITY {
            // Fails for numbers that the kernel does not know.
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == -1 {
                break;
            }
        }
        let header = CapabilityHeader { version: VERSION_3, pid: 0 };
        let none = [CapabilitySet { effective: 0, permitted: 0, inheritable: 0 }; 2];
        check_long(libc::syscall(libc::SYS_capset, ptr::from_ref(&header), none.as_ptr()))
    }
}

fn filter_calls(plan: &Plan) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: plan.filter.len() as libc::c_ushort,
        filter: plan.filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads the program, which lives as long as this process. Its instructions have the kernel's layout.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            ptr::from_ref(&program).cast::<c_void>(),
        )
    })
}

fn check_long(result: c_long) -> Result<(), Errno> {
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}
