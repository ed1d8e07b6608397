//! One connection of lines: hands lines, answers and events to the machine, and does what the
//! machine wants.

use std::future::Future;
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::{Input, Machine, Output, Ticket};
use parlor_engine::{Happening, Processes, SHUTDOWN_GRACE};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::Outgoing;

/// How many pieces of input may wait to be looked at.
pub const INCOMING_CHUNKS: usize = 4;

/// How long a connection may take to end its processes, and how long a peer that has hung up may
/// leave what was written to it unread.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(1);

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
}

/// Serves one connection until the peer leaves or `stop` is ready, then ends what it started.
pub async fn serve(
    machine: impl Machine,
    incoming: Incoming,
    outgoing: Outgoing,
    stop: impl Future<Output = ()>,
) {
    let Incoming { mut chunks, hung_up } = incoming;
    let lines = Lines::new(machine.max_line_bytes());
    let mut connection = Connection { machine, lines, processes: Processes::default(), outgoing };
    let mut has_hung_up = false;
    let hung_up = async {
        if hung_up.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::pin!(stop, hung_up);
    loop {
        connection.serve_lines().await;
        let may_receive = connection.may_serve();
        let may_report = connection.outgoing.has_room_for_output();
        tokio::select! {
            chunk = chunks.recv(), if may_receive => match chunk {
                Some(chunk) => connection.lines.push(&chunk),
                None => break connection.serve_last_line().await,
            },
            happening = connection.processes.next(), if may_report => connection.on_happening(happening).await,
            () = connection.outgoing.shrunk(), if !may_receive || !may_report => {}
            () = connection.outgoing.left() => break,
            () = &mut hung_up, if !has_hung_up => has_hung_up = true,
            // It has hung up and does not read either: nothing will ever move again.
            () = sleep(SHUTDOWN_WAIT), if has_hung_up && !may_receive => break,
            () = &mut stop => break,
        }
    }
    connection.shut_down().await;
}

struct Connection<M> {
    machine: M,
    lines: Lines,
    processes: Processes<Ticket>,
    outgoing: Outgoing,
}

impl<M: Machine> Connection<M> {
    fn may_serve(&self) -> bool {
        self.machine.wants_frame() && self.outgoing.has_room_for_replies()
    }

    /// Serves the lines that have arrived.
    async fn serve_lines(&mut self) {
        while self.may_serve() {
            let Some(line) = self.lines.next_line() else { return };
            hand_over(&mut self.machine, line);
            self.do_what_it_wants().await;
        }
    }

    /// The peer has hung up; it may not have ended its last line.
    async fn serve_last_line(&mut self) {
        if let Some(line) = self.lines.finish() {
            hand_over(&mut self.machine, line);
            self.do_what_it_wants().await;
        }
    }

    async fn on_happening(&mut self, happening: Happening<Ticket>) {
        match happening {
            Happening::Answer(ticket, answer) => self.machine.handle(Input::Answer(ticket, answer)),
            Happening::Event(event) => self.machine.handle(Input::Event(&event)),
        }
        self.do_what_it_wants().await;
    }

    async fn do_what_it_wants(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(mut frame) => {
                    frame.push(b'\n');
                    self.outgoing.send(frame).await;
                }
                Output::Ask(ticket, command) => {
                    if let Some((ticket, answer)) = self.processes.perform(ticket, command) {
                        self.machine.handle(Input::Answer(ticket, answer));
                    }
                }
            }
        }
    }

    /// Ends all processes. A peer that still reads hears of each end; one that does not is not
    /// waited for.
    async fn shut_down(mut self) {
        let deadline = Instant::now() + SHUTDOWN_WAIT;
        self.processes.end_all();
        while !self.processes.is_empty() {
            let may_report = self.outgoing.has_room_for_output();
            tokio::select! {
                happening = self.processes.next(), if may_report => self.on_happening(happening).await,
                () = self.outgoing.shrunk(), if !may_report => {}
                () = self.outgoing.left() => break,
                () = sleep_until(deadline) => break,
            }
        }
        // They were killed long before the deadline; past it only a process that the kernel itself
        // cannot end is left.
        let _ = timeout_at(deadline.max(Instant::now() + SHUTDOWN_GRACE), self.processes.gone()).await;
    }
}

fn hand_over(machine: &mut impl Machine, line: Line<'_>) {
    let limit = machine.max_line_bytes();
    machine.handle(match line {
        Line::Whole(frame) => Input::Frame(frame),
        Line::Oversize => Input::Oversize { limit },
    });
}
