//! One connection of lines: hands lines, answers and events to the machine, and does what the
//! machine wants.

use std::future::Future;
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::{Input, Machine, Output, Ticket};
use parlor_engine::{Happening, Processes};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::Outgoing;

/// Output of processes is taken while fewer bytes than this wait to be written to the peer.
pub const OUTPUT_BACKLOG_BYTES: usize = 1 << 20;

/// Requests are served while fewer bytes than this wait to be written. More than for output, so
/// that a peer who is busy sending is heard although it does not read.
pub const REPLY_BACKLOG_BYTES: usize = 2 << 20;

/// How many pieces of input may wait to be looked at.
pub const INCOMING_CHUNKS: usize = 4;

/// How long a connection may take to end its processes and to get its last frames written.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// Serves one connection until the peer leaves or `stop` is ready, then ends what it started.
///
/// `incoming` carries bytes as they arrive, cut anywhere; its closing is the peer's hanging up.
pub async fn serve(
    machine: impl Machine,
    mut incoming: mpsc::Receiver<Vec<u8>>,
    outgoing: Outgoing,
    stop: impl Future<Output = ()>,
) {
    let lines = Lines::new(machine.max_line_bytes());
    let mut connection = Connection { machine, lines, processes: Processes::default(), outgoing };
    tokio::pin!(stop);
    loop {
        connection.serve_lines().await;
        let may_receive = connection.may_serve();
        let may_report = connection.outgoing.has_room(OUTPUT_BACKLOG_BYTES);
        tokio::select! {
            chunk = incoming.recv(), if may_receive => match chunk {
                Some(chunk) => connection.lines.push(&chunk),
                None => break connection.serve_last_line().await,
            },
            happening = connection.processes.next(), if may_report => connection.on_happening(happening).await,
            () = connection.outgoing.shrunk(), if !may_receive || !may_report => {}
            () = connection.outgoing.left() => break,
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
        self.machine.wants_frame() && self.outgoing.has_room(REPLY_BACKLOG_BYTES)
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
            let may_report = self.outgoing.has_room(OUTPUT_BACKLOG_BYTES);
            tokio::select! {
                happening = self.processes.next(), if may_report => self.on_happening(happening).await,
                () = self.outgoing.shrunk(), if !may_report => {}
                () = self.outgoing.left() => break,
                () = sleep_until(deadline) => break,
            }
        }
        // Past the deadline only a process that the kernel itself cannot end is left.
        let _ = timeout_at(deadline.max(Instant::now() + SHUTDOWN_WAIT / 2), self.processes.gone()).await;
    }
}

fn hand_over(machine: &mut impl Machine, line: Line<'_>) {
    let limit = machine.max_line_bytes();
    machine.handle(match line {
        Line::Whole(frame) => Input::Frame(frame),
        Line::Oversize => Input::Oversize { limit },
    });
}
