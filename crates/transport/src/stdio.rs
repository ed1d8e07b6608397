//! A connection on standard input and output.
//!
//! Each of the two has a thread that blocks, because what stands behind them (a pipe, a socket, a
//! terminal, a file) is the parent's choice and its flags are shared with the parent: switching
//! them to non-blocking would change them under whoever else has them open.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use parlor_doors::{BackendFor, Machine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::connection::{FLUSH_WAIT, INCOMING_CHUNKS, Incoming, serve};
use crate::outgoing::{Outlet, outgoing};
use crate::signals;

/// The largest piece in which input is read.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// How long the first and the longest look for the end of input takes while there is no room for more of it, in
/// nanoseconds. Each takes twice as long as the one before: room mostly comes soon, and a peer that sends much is not
/// kept waiting.
const FIRST_LOOK: i64 = 100_000;
const LONGEST_LOOK: i64 = 50_000_000;

/// Frames are written together up to this many bytes.
const WRITE_BYTES: usize = 256 * 1024;

/// What a pipe on stdout is made to hold once there is much to write. Not from the start: pipe
/// memory is the user's.
const BULK_PIPE_BYTES: usize = 1 << 20;

/// Serves `machine` in front of `backend` on standard input and output until input ends, output cannot be written, or
/// the program is asked to end. Everything that was started is gone when this returns.
///
/// One thread is the runtime to choose: the work is moving bytes between descriptors, and children
/// get a signal when the thread that started them ends, so it must be one that stays. [`block_on`]
/// makes such a runtime.
pub async fn serve_stdio<M, B>(machine: M, backend: B) -> io::Result<()>
where
    M: Machine,
    B: BackendFor<M>,
{
    let stop = signals::asked_to_end()?;
    let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
    let (hang_up, hung_up) = oneshot::channel();
    let incoming = Incoming { chunks, hung_up, refuses_foreign: false };
    let (outgoing, outlet) = outgoing();
    let (done, flushed) = oneshot::channel();
    thread::Builder::new().name("stdin".to_owned()).spawn(move || read_input(&input, hang_up))?;
    thread::Builder::new().name("stdout".to_owned()).spawn(move || write_output(outlet, done))?;
    serve(machine, backend, incoming, outgoing, stop).await;
    // The last frames get time to be written, if anybody reads them.
    let _ = timeout(FLUSH_WAIT, flushed).await;
    Ok(())
}

/// Runs `future` to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn read_input(to: &mpsc::Sender<Vec<u8>>, hang_up: oneshot::Sender<()>) {
    let stdin = io::stdin();
    let mut hang_up = Some(hang_up);
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    loop {
        if !wait_for_input() {
            return;
        }
        match rustix::io::read(stdin.as_fd(), &mut buffer) {
            Ok(0) => {
                // All is read, and not all of it may have been looked at. Nobody listens only if the connection is over.
                if let Some(hang_up) = hang_up.take() {
                    let _ = hang_up.send(());
                }
                return;
            }
            Ok(count) => {
                let piece = buffer.get(..count).unwrap_or_default().to_vec();
                if pass_on(to, piece, &mut hang_up).is_err() {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            // The parent's choice; then waiting is a call of its own.
            Err(Errno::AGAIN) => wait_until(stdin.as_fd(), PollFlags::IN),
            Err(_) => return,
        }
    }
}

/// Waits until there is something to read. False if nobody will ever read what we write: a parent that
/// has closed our output has left, whether or not we have something to say.
fn wait_for_input() -> bool {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut looked_at = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
    // An error is met again, and handled, by the call that follows.
    let _ = poll(&mut looked_at, None);
    let [_, output] = looked_at;
    !output.revents().contains(PollFlags::ERR)
}

/// Waits for room. While there is none the end of input would not be seen behind what is still to be
/// read, so it is looked for, now and then.
fn pass_on(
    to: &mpsc::Sender<Vec<u8>>,
    mut piece: Vec<u8>,
    hang_up: &mut Option<oneshot::Sender<()>>,
) -> Result<(), ()> {
    let mut look = FIRST_LOOK;
    loop {
        match to.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(()),
            Err(TrySendError::Full(back)) => piece = back,
        }
        if hang_up.is_none() {
            return to.blocking_send(piece).map_err(drop);
        }
        let stdin = io::stdin();
        let mut looked_at = [PollFd::new(&stdin, PollFlags::empty())];
        let wait = Timespec { tv_sec: 0, tv_nsec: look };
        let hung_up = poll(&mut looked_at, Some(&wait)).is_ok_and(|ready| ready > 0);
        look = (look * 2).min(LONGEST_LOOK);
        if hung_up && let Some(hang_up) = hang_up.take() {
            // Nobody listens only if the connection is over.
            let _ = hang_up.send(());
        }
    }
}

fn write_output(mut outlet: Outlet, done: oneshot::Sender<()>) {
    let mut is_wide = false;
    while let Some(first) = outlet.blocking_next() {
        let mut bytes = first.len();
        let mut frames = vec![first];
        while bytes < WRITE_BYTES
            && let Some(frame) = outlet.try_next()
        {
            bytes += frame.len();
            frames.push(frame);
        }
        if bytes >= WRITE_BYTES && !is_wide {
            is_wide = true;
            widen(io::stdout().as_fd());
        }
        if write_all(&frames).is_err() {
            // Nobody reads any more. Dropping the outlet ends the connection.
            return;
        }
        drop(frames);
        outlet.written(bytes);
    }
    // Nobody waits only if the program is ending without us.
    let _ = done.send(());
}

/// Makes a pipe hold more. Refused for what is no pipe, or where the user has too much pipe memory
/// already; left alone where the peer has made it wider.
fn widen(pipe: BorrowedFd<'_>) {
    if fcntl_getpipe_size(pipe).is_ok_and(|size| size < BULK_PIPE_BYTES) {
        let _ = fcntl_setpipe_size(pipe, BULK_PIPE_BYTES);
    }
}

fn write_all(frames: &[Vec<u8>]) -> Result<(), Errno> {
    let stdout = io::stdout();
    let mut slices: Vec<IoSlice<'_>> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        match rustix::io::writev(stdout.as_fd(), rest) {
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_until(stdout.as_fd(), PollFlags::OUT),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn wait_until(fd: impl AsFd, what: PollFlags) {
    // An error is met again, and handled, by the call that follows.
    let _ = poll(&mut [PollFd::new(&fd, what)], None);
}
