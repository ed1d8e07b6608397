//! One connection of lines: hands lines, answers and events to the machine, and does what the
//! machine wants.

use std::future::{Future, poll_fn};
use std::task::{Poll, ready};
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::{BackendFor, ForeignProtocol, Input, Machine, Output};
use parlor_vocab::{Ticket, Update, UpdateOf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::Outgoing;
use crate::frame_memory::{FrameAccount, FrameMemory};
use crate::replies::{Replies, Turn};

/// How many pieces of input may wait to be looked at.
pub const INCOMING_CHUNKS: usize = 4;

/// How long the last words of a connection may take, and how long a peer that has hung up may leave
/// what was written to it unread.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

/// How long what a connection started may take to be gone after that.
pub const GONE_WAIT: Duration = Duration::from_millis(500);

/// How long the last frames may take to be written.
pub const FLUSH_WAIT: Duration = Duration::from_millis(500);

/// The way into a connection.
#[derive(Debug)]
pub struct Incoming {
    /// Bytes as they arrive, cut anywhere. Its closing is the peer's hanging up.
    pub chunks: mpsc::Receiver<Vec<u8>>,
    /// Known before `chunks` closes: the peer has hung up, although not all it sent was looked at.
    /// Its closing means nothing.
    pub hung_up: oneshot::Receiver<()>,
    /// Whether anybody could be made to connect, a browser above all: then a line of another protocol ends the
    /// connection, and nothing behind it is read.
    pub refuses_foreign: bool,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// One of the two sides had no more to say.
    Closed,
    /// The peer speaks another protocol. Nothing is owed to it.
    Foreign(ForeignProtocol),
    /// The peer does not take its answers, and others wait for their memory. What is not written is dropped.
    Unread,
}

/// Serves one connection until the peer leaves, the machine closes it or `stop` is ready; then ends
/// what it started. Its frames have memory of their own: it is the only one of its door.
pub async fn serve<M, B>(
    machine: M,
    backend: B,
    incoming: Incoming,
    outgoing: Outgoing,
    stop: impl Future<Output = ()>,
) -> ConnectionEnd
where
    M: Machine,
    B: BackendFor<M>,
{
    serve_within(&FrameMemory::unlimited(), machine, backend, incoming, outgoing, stop).await
}

/// The same for one of many, which shares `memory` with the others.
pub(crate) async fn serve_within<M, B>(
    memory: &FrameMemory,
    machine: M,
    backend: B,
    incoming: Incoming,
    outgoing: Outgoing,
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
        replies: Replies::new(memory),
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
    connection.do_what_it_wants().await;
    while !connection.is_closed {
        // What was said last is answered first, if nothing but the answer is waited for.
        if has_ended && connection.machine.is_settled() {
            break;
        }
        let all_served = connection.serve_lines().await;
        if connection.is_closed {
            break;
        }
        connection.lines.let_go();
        account.set_arriving(connection.lines.held());
        if !all_served {
            account.stop_clock();
        }
        // Lines that are here already come before those that are not: nobody may be about to send more.
        let may_receive = all_served && connection.may_serve();
        let may_report = connection.outgoing.has_room_for_output();
        connection.replies.set_unwritten(connection.outgoing.bytes());
        let may_shrink = !may_receive || !may_report || connection.replies.is_any();
        let wake_at = connection.wake_at;
        tokio::select! {
            chunk = receive(&mut chunks, &mut account), if may_receive && !has_ended => match chunk {
                // The rest of a long line does not come, and others wait for its memory.
                Err(Overdue) => break,
                Ok(Some(chunk)) => connection.lines.push(&chunk),
                Ok(None) => {
                    connection.serve_last_line().await;
                    has_ended = true;
                }
            },
            Some(news) = connection.backend.next(), if may_report => connection.on_news(news).await,
            turn = connection.replies.next() => match turn {
                Turn::Ask(ticket, ask) => {
                    connection.put(ticket, ask);
                    connection.do_what_it_wants().await;
                }
                Turn::Unread => {
                    connection.is_unread = true;
                    break;
                }
            },
            () = connection.outgoing.shrunk(), if may_shrink => {}
            () = connection.outgoing.left() => break,
            () = &mut hung_up, if !has_hung_up => has_hung_up = true,
            // It has hung up and does not read either: nothing will ever move again.
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

/// A long line takes too long.
struct Overdue;

/// The next bytes, once there is memory for them; none if the peer has hung up. Cancel safe.
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
    outgoing: Outgoing,
    replies: Replies<M::Request>,
    refuses_foreign: bool,
    wake_at: Option<Instant>,
    is_closed: bool,
    is_unread: bool,
    /// What the peer speaks instead of the door's dialect.
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

    /// Serves the lines that have arrived. False if some are left for which there is no room.
    async fn serve_lines(&mut self) -> bool {
        let mut all_served = false;
        while self.may_serve() && !self.is_closed {
            if self.hangs_up_on_foreign() {
                break;
            }
            self.lines.set_limit(self.machine.max_line_bytes());
            let Some(line) = self.lines.next_line() else {
                all_served = true;
                break;
            };
            hand_over(&mut self.machine, line);
            self.do_all_it_wants();
        }
        self.outgoing.flush().await;
        all_served
    }

    /// The peer has hung up; it may not have ended its last line.
    async fn serve_last_line(&mut self) {
        if self.hangs_up_on_foreign() {
            return;
        }
        if let Some(line) = self.lines.finish() {
            hand_over(&mut self.machine, line);
            self.do_what_it_wants().await;
        }
    }

    /// Closes the connection if its next line belongs to another protocol, whether that line is complete or not.
    fn hangs_up_on_foreign(&mut self) -> bool {
        if self.refuses_foreign {
            let recognize = match self.machine.wants_object() {
                true => ForeignProtocol::recognize_no_object,
                false => ForeignProtocol::recognize,
            };
            self.foreign = recognize(self.lines.unread());
            self.is_closed |= self.foreign.is_some();
        }
        self.foreign.is_some()
    }

    async fn on_news(&mut self, news: UpdateOf<B>) {
        let now = now();
        match news {
            Update::Answer(ticket, answer) => {
                self.replies.answered(ticket);
                self.machine.handle(now, Input::Answer(ticket, answer));
            }
            Update::Event(event) => self.machine.handle(now, Input::Event(&event)),
        }
        self.do_what_it_wants().await;
    }

    async fn on_deadline(&mut self) {
        self.wake_at = None;
        self.machine.handle(now(), Input::Deadline);
        self.do_what_it_wants().await;
    }

    async fn do_what_it_wants(&mut self) {
        self.do_all_it_wants();
        self.outgoing.flush().await;
    }

    /// Does what the machine wants; what it sends is gathered.
    fn do_all_it_wants(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(mut frame) => {
                    frame.push(b'\n');
                    self.outgoing.send(frame);
                }
                Output::Request(ticket, ask) => {
                    let bytes = self.machine.max_reply_bytes(&ask);
                    if let Some((ticket, ask)) = self.replies.take(ticket, ask, bytes) {
                        self.put(ticket, ask);
                    }
                }
                Output::WakeAt(moment) => self.wake_at = Some(moment.into()),
                Output::Close => self.is_closed = true,
            }
        }
    }

    /// Puts a question to the engine.
    fn put(&mut self, ticket: Ticket, request: M::Request) {
        if let Some((ticket, answer)) = self.backend.submit(ticket, request) {
            self.replies.answered(ticket);
            self.machine.handle(now(), Input::Answer(ticket, answer));
        }
    }

    /// Ends what was started. A peer that still reads hears of each end; one that does not is not
    /// waited for.
    async fn shut_down(mut self) {
        let deadline = Instant::now() + SHUTDOWN_WAIT;
        self.backend.begin_close();
        loop {
            let may_report = self.outgoing.has_room_for_output();
            tokio::select! {
                news = self.backend.next(), if may_report => match news {
                    Some(news) => self.on_news(news).await,
                    None => break,
                },
                () = self.outgoing.shrunk(), if !may_report => {}
                () = self.outgoing.left() => break,
                () = sleep_until(deadline) => break,
            }
        }
        // It was told to end long before the deadline; past it only what the kernel itself cannot
        // end is left.
        let _ = timeout_at(deadline.max(Instant::now()) + GONE_WAIT, self.backend.closed()).await;
    }
}

/// The time, as the runtime has it: tests bring their own.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn hand_over(machine: &mut impl Machine, line: Line<'_>) {
    let limit = machine.max_line_bytes();
    machine.handle(
        now(),
        match line {
            Line::Whole(frame) => Input::Frame(frame),
            Line::Oversize => Input::Oversize { limit },
        },
    );
}
