//! The driver of a line connection: it passes lines, backend answers and events to the machine, and carries out the
//! machine's outputs.

use std::future::{Future, poll_fn};
use std::task::{Poll, ready};
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::{BackendFor, ForeignProtocol, Input, Machine, Output};
use parlor_vocab::{Ticket, Update, UpdateOf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::OutgoingSender;
use crate::frame_memory::{FrameAccount, FrameMemory};
use crate::reply_memory::{ReplyMemory, ReplyStep};

/// How many chunks of input may wait to be handled.
pub const INCOMING_CHUNKS: usize = 4;

/// How long a connection may take to report the end of everything it started, and how long a peer that has hung up may
/// leave its output unread.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

/// How long, after [`SHUTDOWN_WAIT`], the backend may take to end what the connection started.
pub const CLEANUP_WAIT: Duration = Duration::from_millis(500);

/// How long the last frames may take to be written.
pub const FLUSH_WAIT: Duration = Duration::from_millis(500);

/// The input side of a connection.
#[derive(Debug)]
pub struct Incoming {
    /// The peer's bytes in chunks of any size. The channel closes when the peer hangs up.
    pub chunks: mpsc::Receiver<Vec<u8>>,
    /// Receives a value if the transport notices the hang-up while chunks are still unread. A closed sender means nothing.
    pub hung_up: oneshot::Receiver<()>,
    /// True where other programs could be tricked into connecting, above all a browser. Then the first line of another
    /// protocol ends the connection, and nothing after it is read.
    pub refuses_foreign: bool,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The peer hung up, the machine closed the connection, or the server is stopping.
    Closed,
    /// The peer speaks another protocol. It gets no reply.
    Foreign(ForeignProtocol),
    /// The peer does not read its replies while other connections wait for their memory. Unwritten frames are dropped.
    Unread,
}

/// Serves one connection until the peer hangs up, the machine closes it or `stop` completes; then ends everything that the
/// connection started. For the only connection of a door: its frames have no memory limit.
pub async fn serve<M, B>(
    machine: M,
    backend: B,
    incoming: Incoming,
    outgoing: OutgoingSender,
    stop: impl Future<Output = ()>,
) -> ConnectionEnd
where
    M: Machine,
    B: BackendFor<M>,
{
    serve_within(&FrameMemory::unlimited(), machine, backend, incoming, outgoing, stop).await
}

/// Like [`serve`], for one of many connections that share `memory`.
pub(crate) async fn serve_within<M, B>(
    memory: &FrameMemory,
    machine: M,
    backend: B,
    incoming: Incoming,
    outgoing: OutgoingSender,
    stop: impl Future<Output = ()>,
) -> ConnectionEnd
where
    M: Machine,
    B: BackendFor<M>,
{
    let Incoming { mut chunks, hung_up, refuses_foreign } = incoming;
    let lines = machine.lines();
    let mut account = memory.account();
    let mut connection = Connection {
        machine,
        backend,
        lines,
        outgoing,
        replies: ReplyMemory::new(memory),
        refuses_foreign,
        wake_at: None,
        is_closed: false,
        is_unread: false,
        foreign: None,
    };
    let (mut has_hung_up, mut has_ended) = (false, false);
    let hung_up = async {
        if hung_up.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::pin!(stop, hung_up);
    connection.carry_out_and_flush().await;
    while !connection.is_closed {
        // After the end of input, the connection stays until the machine has answered every request.
        if has_ended && connection.machine.has_answered_all() {
            break;
        }
        let all_served = connection.serve_lines().await;
        if connection.is_closed {
            break;
        }
        connection.lines.release_memory();
        account.set_arriving(connection.lines.buffered_bytes());
        if !all_served {
            account.clear_deadline();
        }
        // Handle the lines that are buffered before reading more: the peer may wait for their answers.
        let may_receive = all_served && connection.may_serve();
        let may_report = connection.outgoing.has_room_for_output();
        connection.replies.set_unwritten(connection.outgoing.bytes());
        let awaits_writes = !may_receive || !may_report || connection.replies.is_in_use();
        let wake_at = connection.wake_at;
        tokio::select! {
            chunk = receive(&mut chunks, &mut account), if may_receive && !has_ended => match chunk {
                // The rest of a long line does not arrive, and other connections wait for memory.
                Err(Overdue) => break,
                Ok(Some(chunk)) => connection.lines.push(&chunk),
                Ok(None) => {
                    connection.serve_last_line().await;
                    has_ended = true;
                }
            },
            Some(update) = connection.backend.next(), if may_report => connection.on_update(update).await,
            step = connection.replies.next() => match step {
                ReplyStep::Submit(ticket, request) => {
                    connection.submit(ticket, request);
                    connection.carry_out_and_flush().await;
                }
                ReplyStep::Unread => {
                    connection.is_unread = true;
                    break;
                }
            },
            () = connection.outgoing.wait_for_write(), if awaits_writes => {}
            () = connection.outgoing.closed() => break,
            () = &mut hung_up, if !has_hung_up => has_hung_up = true,
            // The peer has hung up and does not read its output either, so no progress is possible.
            () = sleep(SHUTDOWN_WAIT), if has_hung_up && !may_receive => break,
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {
                connection.on_deadline().await;
            }
            () = &mut stop => break,
        }
    }
    let end = match connection.foreign {
        Some(protocol) => ConnectionEnd::Foreign(protocol),
        None if connection.is_unread => ConnectionEnd::Unread,
        None => ConnectionEnd::Closed,
    };
    connection.shut_down().await;
    end
}

/// A long line took too long to arrive while other connections waited for memory.
struct Overdue;

/// Waits for memory and then for the next chunk; None if the peer has hung up. Cancel safe.
async fn receive(
    chunks: &mut mpsc::Receiver<Vec<u8>>,
    account: &mut FrameAccount,
) -> Result<Option<Vec<u8>>, Overdue> {
    poll_fn(|cx| {
        if account.poll_overdue(cx).is_ready() {
            return Poll::Ready(Err(Overdue));
        }
        ready!(account.poll_room(cx));
        chunks.poll_recv(cx).map(Ok)
    })
    .await
}

struct Connection<M: Machine, B> {
    machine: M,
    backend: B,
    lines: Lines,
    outgoing: OutgoingSender,
    replies: ReplyMemory<M::Request>,
    refuses_foreign: bool,
    /// The deadline that the machine has asked for.
    wake_at: Option<Instant>,
    is_closed: bool,
    is_unread: bool,
    /// The protocol that the peer speaks, if it is not the door's dialect.
    foreign: Option<ForeignProtocol>,
}

impl<M, B> Connection<M, B>
where
    M: Machine,
    B: BackendFor<M>,
{
    fn may_serve(&self) -> bool {
        self.machine.wants_frame() && self.outgoing.has_room_for_replies()
    }

    /// Handles the buffered lines. Returns false if some are left because the machine or the output queue has no room.
    async fn serve_lines(&mut self) -> bool {
        let mut all_served = false;
        while self.may_serve() && !self.is_closed {
            if self.close_if_foreign() {
                break;
            }
            self.lines.set_limit(self.machine.max_line_bytes());
            let Some(line) = self.lines.next_line() else {
                all_served = true;
                break;
            };
            handle_line(&mut self.machine, line);
            self.carry_out();
        }
        self.outgoing.flush().await;
        all_served
    }

    /// Handles the last line of a peer that has hung up; its newline may be missing.
    async fn serve_last_line(&mut self) {
        if self.close_if_foreign() {
            return;
        }
        if let Some(line) = self.lines.finish() {
            handle_line(&mut self.machine, line);
            self.carry_out_and_flush().await;
        }
    }

    /// Closes the connection if its next line, complete or not, belongs to another protocol. Returns whether it does.
    fn close_if_foreign(&mut self) -> bool {
        if self.refuses_foreign {
            let recognize = match self.machine.requires_object() {
                true => ForeignProtocol::recognize_non_object,
                false => ForeignProtocol::recognize,
            };
            self.foreign = recognize(self.lines.unread());
            self.is_closed |= self.foreign.is_some();
        }
        self.foreign.is_some()
    }

    async fn on_update(&mut self, update: UpdateOf<B>) {
        let now = now();
        match update {
            Update::Answer(ticket, answer) => {
                self.replies.on_answer(ticket);
                self.machine.handle(now, Input::Answer(ticket, answer));
            }
            Update::Event(event) => self.machine.handle(now, Input::Event(&event)),
        }
        self.carry_out_and_flush().await;
    }

    async fn on_deadline(&mut self) {
        self.wake_at = None;
        self.machine.handle(now(), Input::Deadline);
        self.carry_out_and_flush().await;
    }

    async fn carry_out_and_flush(&mut self) {
        self.carry_out();
        self.outgoing.flush().await;
    }

    /// Carries out the machine's outputs. Frames to send are only queued until the next flush.
    fn carry_out(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => self.send_line(frame),
                Output::SendShared(frame) => self.send_line(frame.into()),
                Output::Request(ticket, request) => {
                    let reply_bytes = self.machine.max_reply_bytes(&request);
                    if let Some((ticket, request)) = self.replies.reserve(ticket, request, reply_bytes) {
                        self.submit(ticket, request);
                    }
                }
                Output::WakeAt(moment) => self.wake_at = Some(moment.into()),
                Output::Close => self.is_closed = true,
            }
        }
    }

    fn send_line(&mut self, mut frame: Vec<u8>) {
        frame.push(b'\n');
        self.outgoing.send(frame);
    }

    /// Submits a request to the backend, which may answer at once.
    fn submit(&mut self, ticket: Ticket, request: M::Request) {
        if let Some((ticket, answer)) = self.backend.submit(ticket, request) {
            self.replies.on_answer(ticket);
            self.machine.handle(now(), Input::Answer(ticket, answer));
        }
    }

    /// Ends everything that the connection started. A peer that still reads gets an event for each end; the driver does not
    /// wait for a peer that does not read.
    async fn shut_down(mut self) {
        let deadline = Instant::now() + SHUTDOWN_WAIT;
        self.backend.begin_close();
        loop {
            let may_report = self.outgoing.has_room_for_output();
            tokio::select! {
                update = self.backend.next(), if may_report => match update {
                    Some(update) => self.on_update(update).await,
                    None => break,
                },
                () = self.outgoing.wait_for_write(), if !may_report => {}
                () = self.outgoing.closed() => break,
                () = sleep_until(deadline) => break,
            }
        }
        // The backend began to close before the deadline, so only processes that the kernel is slow to end are left now.
        let _ = timeout_at(deadline.max(Instant::now()) + CLEANUP_WAIT, self.backend.closed()).await;
    }
}

/// The runtime's time, which tests can pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn handle_line(machine: &mut impl Machine, line: Line<'_>) {
    let limit = machine.max_line_bytes();
    machine.handle(
        now(),
        match line {
            Line::Whole(frame) => Input::Frame(frame),
            Line::Oversize => Input::Oversize { limit },
        },
    );
}
