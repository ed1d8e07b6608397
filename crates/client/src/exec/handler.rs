//! Handles the frames of an exec server: answers go to their callers, output and exits to their processes.

use std::borrow::Cow;
use std::sync::Arc;

use parlor_doors::exec::{
    ByteChunk, ExecExitedNotification, ExecOutputDeltaNotification, ExecOutputStream, ExecResponse,
    MAX_LINE_BYTES, method,
};
use parlor_doors::jsonrpc::{Envelope, ErrorObject, RequestId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::events::{Chunk, EventsEnd, ExecProcessEvent, Page, ProcessEvents};
use super::output::{ProcessEnd, ProcessOutput};
use super::pending::{PendingRequest, PendingRequests};
use super::{ExecOutput, ExecServerError};
use crate::child::driver::FrameHandler;
use crate::child::link::Link;
use crate::child::process::ChildStatus;

pub(super) struct ExecHandler {
    pub(super) link: Arc<Link<PendingRequests>>,
    pub(super) status: ChildStatus,
}

impl FrameHandler for ExecHandler {
    type Error = ExecServerError;

    const MAX_FRAME_BYTES: usize = MAX_LINE_BYTES;

    fn oversize() -> ExecServerError {
        ExecServerError::Protocol(format!("a line of more than {MAX_LINE_BYTES} bytes"))
    }

    async fn on_frame(&mut self, frame: &[u8]) -> Result<(), ExecServerError> {
        match Envelope::decode(frame) {
            Ok(Envelope::Notification { method, params }) => self.on_notification(&method, params).await,
            Ok(Envelope::Response { id, outcome }) => self.on_response(&id, outcome).await,
            Ok(Envelope::Request { method, .. }) => {
                Err(ExecServerError::protocol(&format!("it sent a request, `{method}`")))
            }
            Err(malformed) => Err(ExecServerError::protocol(&format!("no message: {malformed}"))),
        }
    }
}

impl ExecHandler {
    async fn on_notification(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), ExecServerError> {
        match method {
            method::OUTPUT_DELTA => {
                let delta: ExecOutputDeltaNotification = decode(method, params)?;
                if let Some(process) = self.process(&delta.process_id) {
                    self.deliver(&process, delta.stream, delta.chunk).await;
                }
            }
            method::EXITED => {
                let exited: ExecExitedNotification = decode(method, params)?;
                if let Some(process) = self.process(&exited.process_id) {
                    self.on_exit(&process, exited.exit_code);
                }
            }
            method::PROCESS_OUTPUT => {
                let NumberedParams { process_id, .. } = decode(method, params)?;
                if let Some(process) = self.numbered(&process_id) {
                    let chunk: Chunk = decode(method, params)?;
                    self.on_event(&process, (chunk.seq, Some(chunk.event()))).await;
                }
            }
            method::PROCESS_EXITED => {
                let exited: NumberedParams<'_> = decode(method, params)?;
                if let Some(process) = self.numbered(&exited.process_id) {
                    let event = ExecProcessEvent::Exited {
                        exit_code: exited.exit_code.unwrap_or(-1),
                        is_sandbox_denied: exited.sandbox_denied,
                    };
                    self.on_event(&process, (exited.seq, Some(event))).await;
                }
            }
            method::PROCESS_CLOSED => {
                let NumberedParams { process_id, seq, .. } = decode(method, params)?;
                if let Some(process) = self.numbered(&process_id) {
                    self.on_event(&process, (seq, None)).await;
                }
            }
            // Newer servers may send notifications that this client does not know.
            _ => {}
        }
        Ok(())
    }

    async fn on_response(
        &mut self,
        id: &RequestId,
        outcome: Result<&RawValue, ErrorObject>,
    ) -> Result<(), ExecServerError> {
        let RequestId::Integer(number) = id else { return Ok(()) };
        // An unknown id belongs to a call whose caller has given up, or to an error that answers no request.
        let request = self.link.with_pending(|pending| pending.take(*number));
        let Some(request) = request else { return Ok(()) };
        match (request, outcome) {
            // The sends fail only if the caller no longer waits.
            (PendingRequest::Call { reply, .. }, outcome) => {
                let _ = reply.send(outcome.map(ToOwned::to_owned).map_err(Into::into));
            }
            (PendingRequest::Start { process, reply }, Err(refusal)) => {
                self.link.with_pending(|pending| pending.remove_process(&process));
                let _ = reply.send(Err(refusal.into()));
            }
            (PendingRequest::Start { process, reply }, Ok(result)) => {
                let started = decode_started(&process, result);
                let _ = reply.send(started.as_ref().map(|_| ()).map_err(Clone::clone));
                self.on_started(&process, started?).await;
            }
            (
                PendingRequest::StartNumbered { process, reply } | PendingRequest::CatchUp { process, reply },
                Err(refusal),
            ) => {
                self.link.with_pending(|pending| pending.remove_numbered(&process.process_id));
                let _ = reply.send(Err(refusal.into()));
            }
            (PendingRequest::StartNumbered { reply, .. }, Ok(_)) => drop(reply.send(Ok(()))),
            (PendingRequest::CatchUp { process, reply }, Ok(result)) => {
                let page: Page = serde_json::from_str(result.get()).map_err(|error| {
                    ExecServerError::protocol(&format!("result of `{}`: {error}", method::PROCESS_READ))
                })?;
                match process.caught_up(page) {
                    Ok(events) => {
                        let _ = reply.send(Ok(()));
                        self.push(&process, events).await;
                    }
                    Err(error) => {
                        self.link.with_pending(|pending| pending.remove_numbered(&process.process_id));
                        let _ = reply.send(Err(error));
                    }
                }
            }
        }
        Ok(())
    }

    /// The answer to a start may contain output and the exit code of a process that has already exited.
    async fn on_started(&mut self, process: &Arc<ProcessOutput>, started: ExecResponse) {
        if let Some(chunk) = started.stdout {
            self.deliver(process, ExecOutputStream::Stdout, chunk).await;
        }
        if let Some(chunk) = started.stderr {
            self.deliver(process, ExecOutputStream::Stderr, chunk).await;
        }
        if let Some(code) = started.exit_code {
            self.on_exit(process, code);
        }
    }

    /// Frees the process id before the handle learns of the exit, so that the caller can use the id again at once.
    fn on_exit(&self, process: &Arc<ProcessOutput>, code: i32) {
        self.link.with_pending(|pending| pending.remove_process(process));
        process.end(ProcessEnd::Exited(code));
    }

    /// Puts output into the process's backlog, and waits if there is no room.
    async fn deliver(
        &mut self,
        process: &ProcessOutput,
        stream: ExecOutputStream,
        ByteChunk(bytes): ByteChunk,
    ) {
        if let Err(output) = process.try_push(ExecOutput { stream, bytes }) {
            self.link.deliver(&mut self.status, process.push(output)).await;
        }
    }

    async fn on_event(&mut self, process: &Arc<ProcessEvents>, event: (u64, Option<ExecProcessEvent>)) {
        match process.arrived(event) {
            Ok(events) => self.push(process, events).await,
            Err(error) => {
                self.link.with_pending(|pending| pending.remove_numbered(&process.process_id));
                process.end(EventsEnd::Lost(error));
            }
        }
    }

    /// Puts events into the process's backlog, and waits if there is no room.
    async fn push(&mut self, process: &ProcessEvents, events: Vec<(u64, Option<ExecProcessEvent>)>) {
        for event in events {
            // Before the handle learns of it, so that the caller can go on with the id at once.
            if event.1.is_none() {
                self.link.with_pending(|pending| pending.remove_numbered(&process.process_id));
            }
            if let Err(event) = process.try_push(event) {
                self.link.deliver(&mut self.status, process.push(event)).await;
            }
        }
    }

    fn numbered(&self, process_id: &str) -> Option<Arc<ProcessEvents>> {
        self.link.with_pending(|pending| pending.numbered(process_id))
    }

    fn process(&self, process_id: &str) -> Option<Arc<ProcessOutput>> {
        self.link.with_pending(|pending| pending.process(process_id))
    }
}

/// The params of the notifications about a process with numbered events; each has some.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NumberedParams<'a> {
    #[serde(borrow)]
    process_id: Cow<'a, str>,
    seq: u64,
    exit_code: Option<i32>,
    #[serde(default)]
    sandbox_denied: bool,
}

fn decode<'a, T: Deserialize<'a>>(method: &str, params: Option<&'a RawValue>) -> Result<T, ExecServerError> {
    let params = params.map_or("null", RawValue::get);
    serde_json::from_str(params)
        .map_err(|error| ExecServerError::protocol(&format!("params of `{method}`: {error}")))
}

fn decode_started(process: &ProcessOutput, result: &RawValue) -> Result<ExecResponse, ExecServerError> {
    let started: ExecResponse = serde_json::from_str(result.get())
        .map_err(|error| ExecServerError::protocol(&format!("result of `{}`: {error}", method::EXEC)))?;
    if started.process_id != process.process_id {
        let (asked, got) = (&process.process_id, &started.process_id);
        return Err(ExecServerError::protocol(&format!("asked to start {asked:?}, it started {got:?}")));
    }
    Ok(started)
}
