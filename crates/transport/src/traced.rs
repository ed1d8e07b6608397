//! A machine of which every line is shown on standard error, for people who look for what a client does.

use std::io::Write;
use std::time::Instant;

use parlor_doors::{Input, InputOf, Machine, Output};

/// A machine, and whether and how its lines are shown.
pub struct Traced<M> {
    machine: M,
    door: &'static str,
    /// Makes a line fit to be seen. None if nothing is shown.
    show: Option<fn(&[u8]) -> String>,
}

impl<M> Traced<M> {
    /// Shows the lines of `machine` by `show`, if there is one.
    pub fn new(machine: M, door: &'static str, show: Option<fn(&[u8]) -> String>) -> Self {
        Self { machine, door, show }
    }

    fn tell(&self, way: char, line: &[u8]) {
        if let Some(show) = self.show {
            // Nobody may be there to see it, and clients are served all the same.
            let _ = writeln!(std::io::stderr(), "{} {way} {}", self.door, show(line));
        }
    }
}

impl<M: Machine> Machine for Traced<M> {
    type Request = M::Request;
    type Reply = M::Reply;
    type Event = M::Event;
    type Error = M::Error;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        if let Input::Frame(line) = &input {
            self.tell('>', line);
        }
        self.machine.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<M::Request>> {
        let output = self.machine.poll();
        if let Some(Output::Send(frame)) = &output {
            self.tell('<', frame);
        }
        output
    }

    fn wants_frame(&self) -> bool {
        self.machine.wants_frame()
    }

    fn max_reply_bytes(&self, request: &M::Request) -> usize {
        self.machine.max_reply_bytes(request)
    }

    fn wants_object(&self) -> bool {
        self.machine.wants_object()
    }

    fn max_line_bytes(&self) -> usize {
        self.machine.max_line_bytes()
    }
}
