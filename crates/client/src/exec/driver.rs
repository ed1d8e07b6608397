//! The task of a connection: writes what is queued, reads what arrives and hands it on.
//!
//! Both halves run side by side, so a server that stops reading can still be heard.

use std::sync::Arc;

use parlor_doors::exec::{
    ByteChunk, ExecExitedNotification, ExecOutputDeltaNotification, ExecOutputStream, ExecResponse,
    MAX_LINE_BYTES, method,
};
use parlor_doors::jsonrpc::{ErrorObject, Message, RequestId};
use parlor_doors::lines::{Line, Lines};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::inbox::{Ending, Inbox};
use super::launch::closed;
use super::link::{Link, Pending};
use super::{ExecOutput, ExecServerError};
use crate::child::{Output, Vitals, write_frames};

pub(super) async fn drive<R, W>(
    reader: R,
    writer: W,
    queue: mpsc::Receiver<Vec<u8>>,
    link: Arc<Link>,
    vitals: Vitals,
) where
    R: AsyncRead,
    W: AsyncWrite,
{
    // Whatever ends this task, those who wait are told.
    let _last_words = FinalOutput(Arc::clone(&link));
    let write = async {
        let error = write_frames(std::pin::pin!(writer), queue).await;
        // What the server said before it closed its input can still be read, so only calls fail.
        link.fail_calls(closed(&mut vitals.clone(), Some(error)).await);
        std::future::pending::<()>().await;
    };
    let read = async {
        let reader = std::pin::pin!(reader);
        let mut incoming =
            Incoming { output: Output::new(reader, vitals.clone()), link: &link, vitals: vitals.clone() };
        let verdict = incoming.run().await;
        link.end(verdict);
    };
    tokio::select! {
        // The writer first: it seldom has work, and a flood of output must not hold up a terminate.
        biased;
        () = write => {}
        () = read => {}
    }
}

struct Incoming<'a, R> {
    output: Output<'a, R>,
    link: &'a Link,
    vitals: Vitals,
}

impl<R: AsyncRead> Incoming<'_, R> {
    /// Handles what arrives until the connection is over, and says why it is.
    async fn run(&mut self) -> ExecServerError {
        let mut lines = Lines::new(MAX_LINE_BYTES);
        loop {
            match self.output.read().await {
                Ok([]) => break,
                Ok(arrived) => lines.push(arrived),
                Err(error) => return closed(&mut self.vitals, Some(Arc::new(error))).await,
            }
            while let Some(line) = lines.next_line() {
                if let Err(error) = self.on_line(line).await {
                    return error;
                }
            }
        }
        if let Some(line) = lines.finish() {
            // What a server said half when it died is no breach of the protocol.
            let _ = self.on_line(line).await;
        }
        closed(&mut self.vitals, None).await
    }

    async fn on_line(&mut self, line: Line<'_>) -> Result<(), ExecServerError> {
        let frame = match line {
            Line::Whole(frame) => frame.trim_ascii(),
            Line::Oversize => {
                let what = format!("a line of more than {MAX_LINE_BYTES} bytes");
                return Err(ExecServerError::Protocol(what));
            }
        };
        if frame.is_empty() {
            return Ok(());
        }
        match Message::decode(frame) {
            Ok(Message::Notification { method, params }) => self.on_notification(&method, params).await,
            Ok(Message::Response { id, outcome }) => self.on_response(&id, outcome).await,
            Ok(Message::Request { method, .. }) => {
                Err(ExecServerError::protocol(&format!("it sent a request, `{method}`")))
            }
            Err(malformed) => Err(ExecServerError::protocol(&format!("no message: {malformed}"))),
        }
    }

    async fn on_notification(
        &mut self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), ExecServerError> {
        match method {
            method::OUTPUT_DELTA => {
                let delta: ExecOutputDeltaNotification = decode(method, params)?;
                if let Some(inbox) = self.link.route(&delta.process_id) {
                    self.deliver(&inbox, delta.stream, delta.chunk).await;
                }
            }
            method::EXITED => {
                let exited: ExecExitedNotification = decode(method, params)?;
                if let Some(inbox) = self.link.route(&exited.process_id) {
                    self.exited(&inbox, exited.exit_code);
                }
            }
            // A server may say more than this client knows of.
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
        // Unknown ids are errors that answer nothing, and answers to calls that were given up.
        let Some(pending) = self.link.leave(*number) else { return Ok(()) };
        match (pending, outcome) {
            // Nobody minds if the caller is no longer there: the three sends may fail.
            (Pending::Call { reply, .. }, outcome) => {
                let _ = reply.send(outcome.map(ToOwned::to_owned).map_err(Into::into));
            }
            (Pending::Start { inbox, reply }, Err(refusal)) => {
                self.link.unroute(&inbox);
                let _ = reply.send(Err(refusal.into()));
            }
            (Pending::Start { inbox, reply }, Ok(result)) => {
                let started = decode_started(&inbox, result);
                let _ = reply.send(started.as_ref().map(|_| ()).map_err(Clone::clone));
                self.on_started(&inbox, started?).await;
            }
        }
        Ok(())
    }

    /// The answer to a start may hold output, and may say that the process is over already.
    async fn on_started(&mut self, inbox: &Arc<Inbox>, started: ExecResponse) {
        if let Some(chunk) = started.stdout {
            self.deliver(inbox, ExecOutputStream::Stdout, chunk).await;
        }
        if let Some(chunk) = started.stderr {
            self.deliver(inbox, ExecOutputStream::Stderr, chunk).await;
        }
        if let Some(code) = started.exit_code {
            self.exited(inbox, code);
        }
    }

    /// The id is free before the handle hears of the exit, so that whoever hears may use it again.
    fn exited(&self, inbox: &Arc<Inbox>, code: i32) {
        self.link.unroute(inbox);
        inbox.end(Ending::Exited(code));
    }

    /// Puts output into its inbox, if need be when there is room again.
    async fn deliver(&mut self, inbox: &Inbox, stream: ExecOutputStream, ByteChunk(bytes): ByteChunk) {
        let Err(output) = inbox.offer(ExecOutput { stream, bytes }) else { return };
        let mut push = std::pin::pin!(inbox.push(output));
        tokio::select! {
            biased;
            () = &mut push => return,
            status = self.vitals.death() => {
                // Nobody reads, so the end of the connection will not be seen. Calls need not wait.
                self.link.fail_calls(ExecServerError::Closed { status, source: None });
            }
        }
        push.await;
    }
}

fn decode<'a, T: Deserialize<'a>>(method: &str, params: Option<&'a RawValue>) -> Result<T, ExecServerError> {
    let params = params.map_or("null", RawValue::get);
    serde_json::from_str(params)
        .map_err(|flaw| ExecServerError::protocol(&format!("params of `{method}`: {flaw}")))
}

fn decode_started(inbox: &Inbox, result: &RawValue) -> Result<ExecResponse, ExecServerError> {
    let started: ExecResponse = serde_json::from_str(result.get())
        .map_err(|flaw| ExecServerError::protocol(&format!("result of `{}`: {flaw}", method::EXEC)))?;
    if started.process_id != inbox.process_id {
        let (asked, got) = (&inbox.process_id, &started.process_id);
        return Err(ExecServerError::protocol(&format!("asked to start {asked:?}, it started {got:?}")));
    }
    Ok(started)
}

struct FinalOutput(Arc<Link>);

impl Drop for FinalOutput {
    fn drop(&mut self) {
        self.0.end(self.0.verdict());
    }
}
