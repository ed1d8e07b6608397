//! A machine wrapper that prints every frame to standard error, to debug what a client and a door say to each other.

use std::io::Write;
use std::time::Instant;

use parlor_doors::{Input, InputOf, Machine, Output};

/// A machine whose incoming frames are printed with `>` and outgoing frames with `<`, if tracing is on.
pub struct TracedMachine<M> {
    machine: M,
    door: &'static str,
    /// Formats a frame for printing and hides its secrets. None if tracing is off.
    format: Option<fn(&[u8]) -> String>,
}

impl<M> TracedMachine<M> {
    /// Wraps `machine`. With `format`, each frame is printed as `door > frame` or `door < frame`; with None, nothing is
    /// printed.
    pub fn new(machine: M, door: &'static str, format: Option<fn(&[u8]) -> String>) -> Self {
        Self { machine, door, format }
    }

    fn print(&self, direction: char, frame: &[u8]) {
        if let Some(format) = self.format {
            // If stderr is closed, the clients are still served.
            let _ = writeln!(std::io::stderr(), "{} {direction} {}", self.door, format(frame));
        }
    }
}

impl<M: Machine> Machine for TracedMachine<M> {
    type Request = M::Request;
    type Reply = M::Reply;
    type Event = M::Event;
    type Error = M::Error;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        if let Input::Frame(frame) = &input {
            self.print('>', frame);
        }
        self.machine.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<M::Request>> {
        let output = self.machine.poll();
        match &output {
            Some(Output::Send(frame)) => self.print('<', frame),
            Some(Output::SendShared(frame)) => self.print('<', frame),
            Some(Output::Request(..) | Output::WakeAt(_) | Output::Close) | None => {}
        }
        output
    }

    fn wants_frame(&self) -> bool {
        self.machine.wants_frame()
    }

    fn max_reply_bytes(&self, request: &M::Request) -> usize {
        self.machine.max_reply_bytes(request)
    }

    fn requires_object(&self) -> bool {
        self.machine.requires_object()
    }

    fn max_line_bytes(&self) -> usize {
        self.machine.max_line_bytes()
    }
}
