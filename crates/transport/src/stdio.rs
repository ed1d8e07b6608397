//! The stdio driver: one connection on standard input and output.
//!
//! Each of the two has a thread that makes blocking calls. The parent chooses what stdin and stdout are (pipe, socket,
//! terminal or file) and shares their file status flags; switching them to non-blocking would also change them for every
//! other process that has them open.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

use parlor_doors::{BackendFor, Machine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::connection::{FLUSH_WAIT, INCOMING_CHUNKS, Incoming, serve};
use crate::outgoing::{OutgoingReceiver, outgoing};
use crate::quiet::{self, Activity};
use crate::signals;

/// The most bytes that one read of stdin takes.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// While the input queue is full, the reader polls for the end of stdin. The first poll waits this many nanoseconds and each
/// further poll twice as long, up to the maximum: the queue usually has room again soon, and a fast sender must not wait.
const FIRST_HANGUP_POLL_NANOS: i64 = 100_000;
const MAX_HANGUP_POLL_NANOS: i64 = 50_000_000;

/// Frames are gathered into one write up to this many bytes.
const WRITE_BYTES: usize = 256 * 1024;

/// The size that a pipe on stdout is enlarged to once there is a lot to write. Not from the start, because pipe memory
/// counts against a limit of the user.
const BULK_PIPE_BYTES: usize = 1 << 20;

/// Serves `machine` in front of `backend` on standard input and output until input ends, output cannot be written, or
/// the program receives a termination signal. Every process that the connection started has ended when this returns.
///
/// Use a single-thread runtime, as [`block_on`] makes it. The work is only moving bytes between descriptors, and child
/// processes get a signal when the thread that started them ends, so that thread must live as long as the program.
pub async fn serve_stdio<M, B>(machine: M, backend: B) -> io::Result<()>
where
    M: Machine,
    B: BackendFor<M>,
{
    let stop = signals::termination_signal()?;
    let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
    let (hang_up, hung_up) = oneshot::channel();
    let incoming = Incoming { chunks, hung_up, refuses_foreign: false };
    let (sender, receiver) = outgoing();
    let (done, flushed) = oneshot::channel();
    let activity = Arc::new(Activity::default());
    let (reading, writing) = (Arc::clone(&activity), Arc::clone(&activity));
    thread::Builder::new().name("stdin".to_owned()).spawn(move || read_input(&input, hang_up, &reading))?;
    thread::Builder::new().name("stdout".to_owned()).spawn(move || write_output(receiver, done, &writing))?;
    tokio::select! {
        _ = serve(machine, backend, incoming, sender, stop) => {}
        never = quiet::watch(&activity, parlor_process::unmap_code) => match never {},
    }
    // Give the writer time for the last frames, in case the peer still reads.
    let _ = timeout(FLUSH_WAIT, flushed).await;
    Ok(())
}

/// Runs `future` to completion on a new single-thread runtime, on the calling thread.
pub fn block_on<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn read_input(to: &mpsc::Sender<Vec<u8>>, hang_up: oneshot::Sender<()>, activity: &Activity) {
    let stdin = io::stdin();
    let mut hang_up = Some(hang_up);
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    loop {
        if !wait_for_input() {
            return;
        }
        match rustix::io::read(stdin.as_fd(), &mut buffer) {
            Ok(0) => {
                // Everything was read, though the connection may not have handled it yet. The send fails only if the
                // connection has already ended.
                if let Some(hang_up) = hang_up.take() {
                    let _ = hang_up.send(());
                }
                return;
            }
            Ok(count) => {
                activity.mark();
                let piece = buffer.get(..count).unwrap_or_default().to_vec();
                if forward(to, piece, &mut hang_up).is_err() {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            // The parent made stdin non-blocking, so waiting needs a poll.
            Err(Errno::AGAIN) => wait_until(stdin.as_fd(), PollFlags::IN),
            Err(_) => return,
        }
    }
}

/// Waits until stdin can be read. Returns false if the parent has closed the other end of stdout: then the parent is gone,
/// whether or not there is something to write.
fn wait_for_input() -> bool {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut polled = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
    // The following read reports any error.
    let _ = poll(&mut polled, None);
    let [_, output] = polled;
    !output.revents().contains(PollFlags::ERR)
}

/// Sends a piece of input to the connection, and waits while the queue is full. Meanwhile it polls for a hang-up, which a
/// read would only find behind the bytes that are still unread. Fails if the connection has ended.
fn forward(
    to: &mpsc::Sender<Vec<u8>>,
    mut piece: Vec<u8>,
    hang_up: &mut Option<oneshot::Sender<()>>,
) -> Result<(), ()> {
    let mut poll_nanos = FIRST_HANGUP_POLL_NANOS;
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
        let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
        let wait = Timespec { tv_sec: 0, tv_nsec: poll_nanos };
        let hung_up = poll(&mut polled, Some(&wait)).is_ok_and(|ready| ready > 0);
        poll_nanos = (poll_nanos * 2).min(MAX_HANGUP_POLL_NANOS);
        if hung_up && let Some(hang_up) = hang_up.take() {
            // The send fails only if the connection has already ended.
            let _ = hang_up.send(());
        }
    }
}

fn write_output(mut receiver: OutgoingReceiver, done: oneshot::Sender<()>, activity: &Activity) {
    let mut is_enlarged = false;
    while let Some(first) = receiver.blocking_next() {
        let mut bytes = first.len();
        let mut frames = vec![first];
        while bytes < WRITE_BYTES
            && let Some(frame) = receiver.try_next()
        {
            bytes += frame.len();
            frames.push(frame);
        }
        if bytes >= WRITE_BYTES && !is_enlarged {
            is_enlarged = true;
            enlarge_pipe(io::stdout().as_fd());
        }
        if write_all(&frames).is_err() {
            // The peer has closed its end. Dropping the receiver ends the connection.
            return;
        }
        drop(frames);
        receiver.written(bytes);
        activity.mark();
    }
    // The send fails only if `serve_stdio` no longer waits.
    let _ = done.send(());
}

/// Enlarges a pipe to [`BULK_PIPE_BYTES`], unless it is larger already. The kernel refuses this for a descriptor that is no
/// pipe and for a user at the limit of pipe memory; then the size stays as it is.
fn enlarge_pipe(pipe: BorrowedFd<'_>) {
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

fn wait_until(fd: impl AsFd, events: PollFlags) {
    // The following read or write reports any error.
    let _ = poll(&mut [PollFd::new(&fd, events)], None);
}
