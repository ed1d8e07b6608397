//! What the child does to enter its sandbox, as C strings and numbers: the child may not allocate.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_vocab::{PolicyMode, StartProcess};
use rustix::io::Errno;
use seccompiler::sock_filter;

use crate::SpawnError;
use crate::confine::{free_disk_bytes, limits};
use crate::sandbox::git::GitPaths;
use crate::sandbox::ruleset::Rules;
use crate::sandbox::{
    Disks, Guard, NamespaceHolder, ProxyTask, SANDBOX_TEMP_BYTES, Sandbox, SandboxNetwork, filter, secrets,
};

/// The devices of a sandbox, beside terminals and shared memory.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The links in the `/dev` of a sandbox: where, and to what.
const DEVICE_LINKS: [(&CStr, &CStr); 5] = [
    (c"/dev/fd", c"/proc/self/fd"),
    (c"/dev/stdin", c"/proc/self/fd/0"),
    (c"/dev/stdout", c"/proc/self/fd/1"),
    (c"/dev/stderr", c"/proc/self/fd/2"),
    (c"/dev/ptmx", c"pts/ptmx"),
];

/// Where the child finds the terminal that parlor opened for it: its own `/dev/pts` does not have it.
const TERMINAL: &str = "/dev/console";

/// Where the proxy listens in the network of a sandbox, in which nothing else listens at the start.
const PROXY_PORT: u16 = 3128;

/// The variables by which programs find a proxy.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"];

/// Folders of temporary files. They become private.
const TEMP_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// The folder of temporary files that all programs share, and that a child may be given.
const SHARED_TEMP_FOLDER: &str = "/tmp";

/// Folders that some systems need in order to run any program, in folders that are hidden.
const NEEDED: [&str; 2] = ["/run/current-system", "/run/opengl-driver"];

/// The smallest limit of processes in a pid namespace that the kernel accepts.
const MIN_PROCESSES: u64 = 301;

/// All that the child needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) holder: NamespaceHolder,
    pub(crate) guard: Guard,
    /// The disks to watch while the child runs.
    pub(crate) disks: Option<Disks>,
    pub(super) trees: Vec<Tree>,
    pub(super) steps: Vec<MountStep>,
    /// Where the child may write, for the second wall.
    pub(super) writable: Vec<(CString, PathKind)>,
    pub(super) rules: Option<Rules>,
    pub(super) filter: &'static [sock_filter],
    pub(super) has_own_network: bool,
    pub(crate) proxy: Option<ProxyTask>,
    /// How many processes the namespace may have, for root, to which the kernel does not apply resource limits.
    pub(super) process_limit: Option<CString>,
    pub(super) needs_process_limit: bool,
}

/// A part of the file tree, as it was before parts of it were hidden.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) source: CString,
    pub(super) attributes: u64,
    /// Set by the child.
    pub(super) fd: RawFd,
}

/// A step of the child. All paths are absolute.
#[derive(Debug)]
pub(super) enum MountStep {
    /// Mounts the one empty folder that nothing can be created in.
    Hide(CString),
    /// Mounts an empty folder in memory.
    Empty {
        at: CString,
        options: CString,
    },
    /// Creates a folder, if there is none.
    Folder(CString),
    /// Creates a file, if there is none.
    File(CString),
    Link {
        at: &'static CStr,
        target: &'static CStr,
    },
    /// Mounts a tree.
    Attach {
        tree: usize,
        at: CString,
    },
    /// Mounts terminals of its own at `/dev/pts`.
    Terminals,
    /// Makes a mount read-only.
    Seal(CString),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    Folder,
    File,
}

/// What the child sees at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Hidden,
    Temporary,
    ReadOnly,
    Writable,
}

impl Plan {
    /// Looks at the file system, and creates the namespaces. `start` is changed to what the child sees.
    pub(crate) fn new(
        sandbox: &Sandbox,
        start: &mut StartProcess,
        terminal: Option<&CStr>,
    ) -> Result<Self, SpawnError> {
        let (views, guard) = views(sandbox)?;
        // The descriptor's name of a folder leads out of the sandbox.
        start.folder = fs::canonicalize(&start.folder).map_err(|error| SpawnError::Folder {
            folder: start.folder.clone(),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        set_variable(&mut start.env, "TMPDIR", "/tmp");
        let mut mounts = Mounts::default();
        mounts.add_views(&views, sandbox.temp_folder.as_deref())?;
        mounts.add_devices(terminal)?;
        let temporary =
            TEMP_FOLDERS.iter().filter(|path| Path::new(path).is_dir()).copied().chain(["/dev/shm"]);
        let temporary = temporary.map(|path| Ok((c_path(Path::new(path))?, PathKind::Folder)));
        let writable =
            views.iter().filter(|(_, view)| **view == View::Writable).map(|(path, _)| path.as_path());
        let on_disk = |view: &View| *view == View::Writable;
        let written = views.iter().filter(|(_, view)| on_disk(view)).map(|(path, _)| path.clone());
        let written = written.chain(sandbox.temp_folder.clone());
        let disks = free_disk_bytes().map(|limit| Disks::of(written, limit));
        let processes = limits().iter().find(|limit| limit.resource == libc::RLIMIT_NPROC);
        let has_own_network = !matches!(sandbox.network, SandboxNetwork::Open);
        let holder = NamespaceHolder::create(has_own_network)?;
        let mut proxy = None;
        if let SandboxNetwork::Proxy(rules) = &sandbox.network {
            proxy = Some(ProxyTask::start(holder.listen(PROXY_PORT)?, Arc::clone(rules))?);
            let address = format!("http://127.0.0.1:{PROXY_PORT}");
            for name in PROXY_VARIABLES {
                set_variable(&mut start.env, name, &address);
            }
            for name in ["NO_PROXY", "no_proxy"] {
                set_variable(&mut start.env, name, "localhost,127.0.0.1,::1");
            }
        }
        Ok(Self {
            guard,
            disks,
            trees: mounts.trees,
            steps: mounts.steps.into_iter().chain(mounts.seals).collect(),
            writable: writable
                .map(|path| Ok((c_path(path)?, path_kind(path))))
                .chain(temporary)
                .collect::<Result<_, SpawnError>>()?,
            rules: Rules::create()?,
            filter: filter::filter()?,
            has_own_network,
            proxy,
            process_limit: processes.map(|limit| {
                CString::new(limit.value.max(MIN_PROCESSES).to_string()).expect("digits have no NUL")
            }),
            needs_process_limit: rustix::process::geteuid().is_root(),
            holder,
        })
    }
}

impl Plan {
    /// Called in the guide of the child, so a system call only.
    pub(crate) fn enter_namespaces(&self) -> Result<(), Errno> {
        self.holder.enter(self.has_own_network)
    }
}

/// What the child sees where. Everything else is read-only.
type Views = BTreeMap<PathBuf, View>;

fn views(sandbox: &Sandbox) -> Result<(Views, Guard), SpawnError> {
    let project = checked_project(sandbox)?;
    let mut views = Views::new();
    let mut add = |path: &Path, view: View| {
        if let Some(real) = real_path(path) {
            views.insert(real, view);
        }
    };
    TEMP_FOLDERS.iter().for_each(|path| add(Path::new(path), View::Temporary));
    if let Some(folder) = &sandbox.temp_folder
        && real_path(folder).is_some_and(|folder| folder == Path::new(SHARED_TEMP_FOLDER))
    {
        // The machine's own: a writable folder as any other, in which paths can be hidden.
        add(folder, View::Writable);
    }
    secrets::of_system().for_each(|path| add(&path, View::Hidden));
    NEEDED.iter().for_each(|path| add(Path::new(path), View::ReadOnly));
    if matches!(sandbox.network, SandboxNetwork::Open) {
        add(Path::new("/etc/resolv.conf"), View::ReadOnly);
    }
    sandbox.readable.iter().for_each(|path| add(path, View::ReadOnly));
    sandbox.writable.iter().for_each(|path| add(path, View::Writable));
    let is_writable = sandbox.mode != PolicyMode::ReadOnly;
    add(&project, if is_writable { View::Writable } else { View::ReadOnly });
    // After all that allows something, so that of two views of a path the stricter one stays.
    sandbox.hidden.iter().for_each(|path| add(path, View::Hidden));
    if views.get(&project) == Some(&View::Hidden) {
        let project = project.display();
        let message =
            format!("the project {project} is hidden, as a secret or by a rule; choose another folder");
        return Err(SpawnError::Sandbox(message));
    }
    let mut guard = Guard::default();
    let mut protected = Vec::new();
    if is_writable {
        let git = GitPaths::of(&project)?;
        for real in git.pinned.iter().filter_map(|path| real_path(path)) {
            // It may be outside of the project, but not where nothing may be seen.
            if view_of(&real, &views) != View::Hidden {
                views.entry(real).or_insert(View::Writable);
            }
        }
        protected = git.protected;
        guard = git.guard;
    }
    for real in protected.iter().chain(&sandbox.protected).filter_map(|path| real_path(path)) {
        // Only below what can be written: elsewhere it would show what is hidden.
        if view_of(&real, &views) == View::Writable {
            views.insert(real, View::ReadOnly);
        }
    }
    pin_parents(&mut views);
    Ok((views, guard))
}

/// The path without links, if it exists and is not the root.
fn real_path(path: &Path) -> Option<PathBuf> {
    // Most secrets do not exist, and to look is much faster than to resolve a path.
    path.symlink_metadata().ok()?;
    fs::canonicalize(path).ok().filter(|real| real != Path::new("/"))
}

/// What the child sees at `path`: the view of the nearest folder.
fn view_of(path: &Path, views: &Views) -> View {
    path.ancestors().find_map(|folder| views.get(folder).copied()).unwrap_or(View::ReadOnly)
}

/// Makes mounts of the writable folders around what must not be written or seen. A mount cannot be renamed; with a plain
/// folder, what is mounted in it would stay behind at the old path.
fn pin_parents(views: &mut Views) {
    let restricted: Vec<PathBuf> =
        views.iter().filter(|(_, view)| **view != View::Writable).map(|(path, _)| path.clone()).collect();
    for path in restricted {
        for parent in path.ancestors().skip(1) {
            if view_of(parent, views) == View::Writable {
                views.insert(parent.to_path_buf(), View::Writable);
            }
        }
    }
}

/// The project without links.
fn checked_project(sandbox: &Sandbox) -> Result<PathBuf, SpawnError> {
    let shown = sandbox.project.display();
    let project = fs::canonicalize(&sandbox.project)
        .map_err(|error| SpawnError::Sandbox(format!("the project {shown} cannot be opened: {error}")))?;
    if !project.is_dir() {
        return Err(SpawnError::Sandbox(format!("the project {shown} is no folder")));
    }
    let is_system = ["/dev", "/proc", "/sys"].iter().any(|folder| project.starts_with(folder));
    if is_system || (project == Path::new("/") && sandbox.mode == PolicyMode::Workspace) {
        let message = format!("the project {shown} cannot be made writable; choose a folder of your own");
        return Err(SpawnError::Sandbox(message));
    }
    Ok(project)
}

/// Whether the child sees something else somewhere below `folder`.
fn has_views_below(folder: &Path, views: &Views) -> bool {
    views.keys().any(|path| path != folder && path.starts_with(folder))
}

#[derive(Default)]
struct Mounts {
    trees: Vec<Tree>,
    steps: Vec<MountStep>,
    /// At the end, when nothing is created any more.
    seals: Vec<MountStep>,
}

impl Mounts {
    fn add_views(&mut self, views: &Views, temp_folder: Option<&Path>) -> Result<(), SpawnError> {
        let (mut created, mut mounted) = (BTreeSet::new(), BTreeMap::new());
        // In the order of paths: what contains comes before what is contained.
        for (path, view) in views {
            let around = path.ancestors().skip(1).find_map(|folder| Some((folder, *mounted.get(folder)?)));
            let outer = around.map_or(View::ReadOnly, |(_, view)| view);
            let is_private = matches!(outer, View::Hidden | View::Temporary);
            let changes_nothing = match view {
                View::Hidden | View::Temporary => is_private,
                View::ReadOnly => outer == View::ReadOnly,
                View::Writable => false,
            };
            if changes_nothing {
                continue;
            }
            mounted.insert(path.as_path(), *view);
            if let Some((folder, _)) = around
                && is_private
            {
                self.create_place(path, folder, &mut created)?;
            }
            let at = c_path(path)?;
            match (view, path_kind(path), temp_folder) {
                (View::ReadOnly, ..) => self.attach(path, READ_ONLY, at)?,
                (View::Writable, ..) => self.attach(path, WRITABLE, at)?,
                (View::Hidden, PathKind::File, _) => self.attach(Path::new("/dev/null"), DEVICE, at)?,
                (View::Hidden, PathKind::Folder, _) if has_views_below(path, views) => {
                    self.seals.push(MountStep::Seal(at.clone()));
                    self.steps.push(MountStep::Empty { at, options: HIDDEN_OPTIONS.to_owned() });
                }
                (View::Hidden, PathKind::Folder, _) => self.steps.push(MountStep::Hide(at)),
                // Only there: at a second place it would show what is hidden at the first.
                (View::Temporary, _, Some(folder)) if path == Path::new(SHARED_TEMP_FOLDER) => {
                    self.attach(folder, WRITABLE, at)?;
                }
                (View::Temporary, ..) => {
                    self.steps.push(MountStep::Empty { at, options: temp_options() });
                }
            }
        }
        Ok(())
    }

    /// Creates what `path` is mounted on, below the empty `folder`.
    fn create_place(
        &mut self,
        path: &Path,
        folder: &Path,
        created: &mut BTreeSet<PathBuf>,
    ) -> Result<(), SpawnError> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|ancestor| *ancestor != folder).collect();
        missing.reverse();
        for place in missing {
            if created.insert(place.to_path_buf()) {
                let name = c_path(place)?;
                self.steps.push(match path_kind(place) {
                    PathKind::Folder => MountStep::Folder(name),
                    PathKind::File => MountStep::File(name),
                });
            }
        }
        Ok(())
    }

    /// A `/dev` without disks, memory and the user's terminals.
    fn add_devices(&mut self, terminal: Option<&CStr>) -> Result<(), SpawnError> {
        self.steps.push(MountStep::Empty { at: c"/dev".to_owned(), options: HIDDEN_OPTIONS.to_owned() });
        for device in DEVICES.map(Path::new).into_iter().filter(|device| device.exists()) {
            self.steps.push(MountStep::File(c_path(device)?));
            self.attach(device, DEVICE, c_path(device)?)?;
        }
        if let Some(terminal) = terminal {
            self.steps.push(MountStep::File(c_path(Path::new(TERMINAL))?));
            self.attach_at(terminal.to_owned(), DEVICE, c_path(Path::new(TERMINAL))?);
        }
        self.steps.extend(DEVICE_LINKS.map(|(at, target)| MountStep::Link { at, target }));
        self.steps.push(MountStep::Folder(c"/dev/pts".to_owned()));
        self.steps.push(MountStep::Terminals);
        self.steps.push(MountStep::Folder(c"/dev/shm".to_owned()));
        self.steps.push(MountStep::Empty { at: c"/dev/shm".to_owned(), options: temp_options() });
        self.seals.push(MountStep::Seal(c"/dev".to_owned()));
        Ok(())
    }

    fn attach(&mut self, source: &Path, attributes: u64, at: CString) -> Result<(), SpawnError> {
        self.attach_at(c_path(source)?, attributes, at);
        Ok(())
    }

    fn attach_at(&mut self, source: CString, attributes: u64, at: CString) {
        self.steps.push(MountStep::Attach { tree: self.trees.len(), at });
        self.trees.push(Tree { source, attributes, fd: -1 });
    }
}

pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | WRITABLE;
const WRITABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const DEVICE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

const HIDDEN_OPTIONS: &CStr = c"mode=755,size=64k";

fn temp_options() -> CString {
    CString::new(format!("mode=1777,size={SANDBOX_TEMP_BYTES}")).expect("no NUL in it")
}

fn path_kind(path: &Path) -> PathKind {
    if path.is_dir() { PathKind::Folder } else { PathKind::File }
}

fn c_path(path: &Path) -> Result<CString, SpawnError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| SpawnError::NulByte("a path of the sandbox"))
}

fn set_variable(env: &mut Vec<(String, String)>, name: &str, value: &str) {
    env.retain(|(known, _)| known != name);
    env.push((name.to_owned(), value.to_owned()));
}
