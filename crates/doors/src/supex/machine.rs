//! What the state machines of the two servers share: the pending request and the frames to send.
//!
//! The machines are in `bridge.rs` and `repl.rs`.

mod bridge;
mod repl;

use std::collections::VecDeque;
use std::time::Instant;

use parlor_vocab::{EvaluationResult, RubyJob, RubyRequest};
use serde::Serialize;

pub use bridge::{AttachInfo, BridgeMachine};
pub use repl::ReplMachine;

use super::code::{self, FrameError, ReplyError, ServerKind};
use super::{MAX_REPLY_BYTES, encode};
use crate::{Output, Ticket};

/// The outgoing side of a machine. It has at most one pending request: the next one waits for the reply.
#[derive(Debug)]
struct Outgoing<K> {
    server_kind: ServerKind,
    pending: Option<Pending<K>>,
    is_closed: bool,
    next_ticket: u64,
    outbox: VecDeque<Output<RubyRequest>>,
}

/// A request that the backend has not answered yet.
#[derive(Debug)]
struct Pending<K> {
    ticket: Ticket,
    /// The id of the client's request, as the client wrote it.
    id: String,
    kind: K,
}

impl<K> Outgoing<K> {
    fn new(server_kind: ServerKind, wake_at: Option<Instant>) -> Self {
        let outbox = wake_at.map(Output::WakeAt).into_iter().collect();
        Self { server_kind, pending: None, is_closed: false, next_ticket: 0, outbox }
    }

    fn submit(&mut self, id: &str, request: RubyRequest, kind: K) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending = Some(Pending { ticket, id: id.to_owned(), kind });
        self.outbox.push_back(Output::Request(ticket, request));
    }

    fn take_pending(&mut self, ticket: Ticket) -> Option<Pending<K>> {
        self.pending.take_if(|pending| pending.ticket == ticket)
    }

    fn send_result(&mut self, id: &str, result: &(impl Serialize + ?Sized)) {
        self.outbox.push_back(Output::Send(encode::success(self.server_kind, id, &result)));
    }

    fn send_error(&mut self, id: &str, error: &ReplyError) {
        self.outbox.push_back(Output::Send(encode::failure(self.server_kind, id, error)));
    }

    fn send_frame_error(&mut self, id: &str, error: FrameError) {
        self.send_error(id, &code::frame_error(error, self.server_kind));
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.outbox.push_back(Output::Close);
    }
}

/// The only one of parlor's own tools with a large output: it returns images.
const IMAGE_TOOL: &str = "read_file";

/// The most bytes that the reply to a request may have; 0 for requests with small replies. The other tools of parlor limit
/// their output to some hundred KiB, so a call of one, which may run for hours, holds no memory.
fn max_reply_bytes(request: &RubyRequest) -> usize {
    match request {
        RubyRequest::Call { job, .. } => match **job {
            RubyJob::Snippet { .. }
            | RubyJob::File { .. }
            | RubyJob::ConsoleLine { .. }
            | RubyJob::Upstream(_)
            | RubyJob::ListResources => MAX_REPLY_BYTES,
            RubyJob::Tool { ref name, .. } if name == IMAGE_TOOL => MAX_REPLY_BYTES,
            RubyJob::RestartRuby | RubyJob::PingUpstream | RubyJob::Tool { .. } => 0,
        },
        RubyRequest::OpenConsole { .. } | RubyRequest::DescribeConsole | RubyRequest::ListTools => 0,
    }
}

/// Everything that an evaluation printed, as one text.
fn printed_text(evaluated: &EvaluationResult) -> String {
    let mut text: String = evaluated.printed.iter().map(|(_, text)| text.as_str()).collect();
    if evaluated.omitted_bytes > 0 {
        text.push_str(&format!("\n[… {} more bytes were printed …]\n", evaluated.omitted_bytes));
    }
    text
}

#[cfg(test)]
mod tests;
