//! Unix sockets in a folder of the state folder, through which processes of the same user talk to each other.
//!
//! A socket is only a name: whether its process lives is decided by a connection attempt. A socket with its final name
//! already listens, so one that refuses connections was left by a process that was killed. Only the user can enter the
//! folder, and both ends check the user of the other.
//!
//! A path may be longer than a socket address: such a socket is reached through a descriptor of its folder.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use tokio::net::{UnixListener, UnixStream};

/// The longest path that fits into a socket address.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Sockets whose names begin with a dot exist for an instant only. Older ones were left by a process that was killed at
/// that instant.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// The file of a listening socket. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    /// Listens on the socket `name` in `folder`, which is created if it is missing. Replaces a socket of that name. Must be
    /// called within a tokio runtime.
    pub(crate) fn bind(folder: &Path, name: &str) -> io::Result<(UnixListener, Self)> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let unfinished = Self(folder.join(format!(".{name}")));
        match std::fs::remove_file(unfinished.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&ShortPath::to(unfinished.path())?.path)?;
        std::fs::set_permissions(unfinished.path(), Permissions::from_mode(0o600))?;
        let path = folder.join(name);
        std::fs::rename(unfinished.path(), &path)?;
        Ok((listener, Self(path)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is left behind is removed by the next process that cannot connect to it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Connects to a socket. Fails if the process at the other end belongs to another user.
pub async fn connect_socket(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(&ShortPath::to(path)?.path).await?;
    match is_same_user(&stream) {
        true => Ok(stream),
        false => Err(io::Error::new(ErrorKind::PermissionDenied, "the socket is another user's")),
    }
}

/// Like [`connect_socket`], and removes the socket if its process is gone.
pub(crate) async fn connect_or_remove(path: &Path) -> Option<UnixStream> {
    match connect_socket(path).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            if error.kind() == ErrorKind::ConnectionRefused {
                remove_dead(path);
            }
            None
        }
    }
}

/// Removes the sockets in `folder` whose names end with `suffix` and whose processes are gone. Living processes do not notice.
pub async fn remove_dead_sockets(folder: &Path, suffix: &str) {
    for path in sockets(folder, suffix) {
        if (is_finished(&path) || is_leftover(&path)) && is_dead(&path) {
            remove_dead(&path);
        }
        // Thousands of dead sockets must not delay other tasks of this thread.
        tokio::task::yield_now().await;
    }
}

/// The sockets in `folder` that are or were served and whose names end with `suffix`, sorted by name.
pub(crate) fn finished_sockets(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut paths = sockets(folder, suffix);
    paths.retain(|path| is_finished(path));
    paths.sort();
    paths
}

/// Whether the other end is a process of this user, or of root.
pub(crate) fn is_same_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

fn sockets(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| name(path).is_some_and(|name| name.ends_with(suffix))).collect()
}

fn is_finished(path: &Path) -> bool {
    name(path).is_some_and(|name| !name.starts_with('.'))
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn is_leftover(path: &Path) -> bool {
    let modified = std::fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LEFTOVER_AGE))
}

/// False for other files, which refuse connections like dead sockets do.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Whether the process of a socket is gone. A living process is not woken: a datagram socket never connects to a stream
/// socket, and the kernel refuses it with another error if the socket is open.
fn is_dead(path: &Path) -> bool {
    let probe = ShortPath::to(path).and_then(|short| UnixDatagram::unbound()?.connect(&short.path));
    probe.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Removes a socket that has refused a connection, unless a process listens at this name meanwhile: the file is taken aside
/// and checked again.
fn remove_dead(path: &Path) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = name(path).filter(|_| is_socket(path)) else { return };
    let aside = format!(".{}-{}-{name}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let aside = path.with_file_name(aside);
    if std::fs::rename(path, &aside).is_err() {
        // Somebody else has removed it.
        return;
    }
    // A living process gets its name back, unless a newer one has it.
    if is_dead(&aside) || renameat_with(CWD, &aside, CWD, path, RenameFlags::NOREPLACE).is_err() {
        let _ = std::fs::remove_file(&aside);
    }
}

/// A path that fits into a socket address.
struct ShortPath {
    path: PathBuf,
    /// The folder of the socket, if the path leads through its descriptor.
    _folder: Option<OwnedFd>,
}

impl ShortPath {
    /// A short path to the same file as `path`.
    fn to(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const SUFFIX: &str = ".sock";

    /// Creates the socket of a process that was killed.
    fn leave_dead(folder: &Path, name: &str) -> PathBuf {
        let (listener, file) = SocketFile::bind(folder, name).unwrap();
        drop(listener);
        let path = file.path().to_owned();
        std::mem::forget(file);
        path
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_for_its_user_only_and_is_removed_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/run");
        let (_listener, file) = SocketFile::bind(&folder, "1.sock").unwrap();
        assert_eq!((mode(&folder), mode(file.path())), (0o700, 0o600));
        connect_socket(file.path()).await.unwrap();
        drop(file);
        assert_eq!(names(&folder), [""; 0]);
    }

    #[tokio::test]
    async fn a_socket_with_a_long_path_is_bound_reached_and_swept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("d".repeat(100)).join("run");
        let (_listener, file) = SocketFile::bind(&folder, "1.sock").unwrap();
        assert!(file.path().as_os_str().len() > MAX_SOCKET_PATH_BYTES);
        connect_socket(file.path()).await.unwrap();
        leave_dead(&folder, "2.sock");
        remove_dead_sockets(&folder, SUFFIX).await;
        assert_eq!(names(&folder), ["1.sock"]);
    }

    #[tokio::test]
    async fn a_sweep_removes_what_killed_processes_left_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (_listener, _file) = SocketFile::bind(folder, "1.sock").unwrap();
        leave_dead(folder, "2.sock");
        leave_dead(folder, "2.peer");
        std::fs::write(folder.join("notes.sock"), "a file of the user").unwrap();
        let opening = folder.join(".3.sock");
        drop(std::os::unix::net::UnixListener::bind(&opening).unwrap());
        remove_dead_sockets(folder, SUFFIX).await;
        assert_eq!(names(folder), [".3.sock", "1.sock", "2.peer", "notes.sock"], "3 may be about to listen");
        make_old(&opening);
        remove_dead_sockets(folder, SUFFIX).await;
        assert_eq!(names(folder), ["1.sock", "2.peer", "notes.sock"]);
    }

    #[tokio::test]
    async fn a_sweep_does_not_connect_to_living_processes() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, _file) = SocketFile::bind(folder.path(), "1.sock").unwrap();
        remove_dead_sockets(folder.path(), SUFFIX).await;
        let listener = listener.into_std().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(names(folder.path()), ["1.sock"]);
    }

    /// Sets the time of the last change to 1970. A socket cannot be opened, so the time is set by its path.
    fn make_old(path: &Path) {
        let time = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    #[test]
    fn a_sweep_never_removes_the_socket_of_a_process_that_starts_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let (sweeper, opener, barrier) = (runtime(), runtime(), Barrier::new(2));
        let _context = opener.enter();
        for _ in 0..1000 {
            let path = leave_dead(folder, "7.sock");
            let (listener, file) = std::thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    sweeper.block_on(remove_dead_sockets(folder, SUFFIX));
                });
                barrier.wait();
                SocketFile::bind(folder, "7.sock").unwrap()
            });
            assert!(std::os::unix::net::UnixStream::connect(&path).is_ok(), "{:?}", names(folder));
            drop((listener, file));
        }
    }
}
