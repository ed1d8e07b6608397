//! The Ruby backend of one connection, which has one request at a time.

use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{Answer, Backend, RubyJob, RubyRefusal, RubyReply, RubyRequest, Ticket, Update, UpdateOf};

use super::calls::{Asker, CallId, Entered, PendingReply};
use super::known_losses::KnownLosses;
use super::{EvaluateAt, HangUpCheck, MAX_CALLS, RubyShared, Upstream, jobs};

/// The Ruby backend of one connection. While a call waits for its answer, other requests are refused.
pub struct RubyConnection {
    shared: Arc<RubyShared>,
    waiting: Option<(Ticket, CallId, PendingReply)>,
    has_hung_up: Arc<HangUpCheck>,
    receipt: DeliveryReceipt,
    /// The upstream runtime's console, if this connection opened a console and its lines are evaluated upstream.
    console: Option<Arc<dyn Upstream>>,
    known_losses: KnownLosses,
    is_closing: bool,
}

/// Tells the backend that the client has received the last answer, so that it need not be kept for a repeat.
#[derive(Clone)]
pub struct DeliveryReceipt {
    shared: Arc<RubyShared>,
    answered: Arc<Mutex<Option<CallId>>>,
}

impl DeliveryReceipt {
    /// The client has received the last answer.
    pub fn confirm(&self) {
        self.set_answered(None);
    }

    /// Sets the call that was answered last. A client that sends another request has received the previous answer.
    fn set_answered(&self, call: Option<CallId>) {
        let before =
            std::mem::replace(&mut *self.answered.lock().unwrap_or_else(PoisonError::into_inner), call);
        if let Some(before) = before {
            self.shared.calls.forget(before);
        }
    }
}

impl RubyConnection {
    pub(super) fn new(shared: Arc<RubyShared>, has_hung_up: HangUpCheck) -> Self {
        let receipt = DeliveryReceipt { shared: Arc::clone(&shared), answered: Arc::default() };
        let has_hung_up = Arc::new(has_hung_up);
        Self {
            shared,
            waiting: None,
            has_hung_up,
            receipt,
            console: None,
            known_losses: KnownLosses::default(),
            is_closing: false,
        }
    }

    /// The receipt for this connection's answers.
    pub fn receipt(&self) -> DeliveryReceipt {
        self.receipt.clone()
    }
}

impl Backend for RubyConnection {
    type Request = RubyRequest;
    /// Shared, because a repeated request gets the same answer.
    type Reply = Arc<RubyReply>;
    type Event = ();
    type Error = RubyRefusal;

    fn submit(
        &mut self,
        ticket: Ticket,
        request: RubyRequest,
    ) -> Option<Answer<Arc<RubyReply>, RubyRefusal>> {
        let done = |reply| Some((ticket, Ok(Arc::new(reply))));
        if self.waiting.is_some() {
            return Some((ticket, Err(RubyRefusal::TooManyRequests { limit: 1 })));
        }
        match request {
            RubyRequest::DescribeConsole => done(self.shared.console.status()),
            RubyRequest::OpenConsole { pid } => {
                let upstream = self.shared.upstream.as_ref().filter(|(_, at)| *at == EvaluateAt::Upstream);
                self.console = upstream.and_then(|(upstream, _)| upstream.console());
                done(self.shared.sessions.begin(pid))
            }
            RubyRequest::ListTools => done(self.shared.list_tools()),
            RubyRequest::Call { job, .. }
                if *job == RubyJob::PingUpstream && self.shared.upstream.is_none() =>
            {
                done(RubyReply::NoUpstream)
            }
            RubyRequest::Call { repeat, caller, job } => {
                match self.shared.calls.enter(repeat, Asker::new(&self.has_hung_up)) {
                    Entered::Full => Some((ticket, Err(RubyRefusal::TooManyRequests { limit: MAX_CALLS }))),
                    Entered::Known(call, reply) => {
                        self.waiting = Some((ticket, call, reply));
                        None
                    }
                    Entered::New(call, sender, reply) => {
                        let (shared, console) = (Arc::clone(&self.shared), self.console.clone());
                        let known_losses = self.known_losses.clone();
                        tokio::spawn(async move {
                            let console = console.as_deref();
                            let reply = jobs::run_job(&shared, console, &caller, &known_losses, *job).await;
                            shared.calls.keep_answer(call, jobs::reply_bytes(&reply));
                            // If the connection is closed, a connection that repeats the request gets the reply.
                            sender.send_replace(Some(Arc::new(reply)));
                        });
                        self.waiting = Some((ticket, call, reply));
                        None
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        let Some((_, _, reply)) = &mut self.waiting else {
            if self.is_closing {
                return None;
            }
            return std::future::pending().await;
        };
        let reply = reply.wait_for(Option::is_some).await.ok().and_then(|reply| reply.clone());
        let (ticket, call, _) = self.waiting.take()?;
        let Some(reply) = reply else {
            // The job's task ended without a reply.
            self.shared.calls.abandon(call);
            return Some(Update::Answer(ticket, Ok(Arc::new(jobs::stopped_reply()))));
        };
        self.receipt.set_answered(Some(call));
        Some(Update::Answer(ticket, Ok(reply)))
    }

    fn begin_close(&mut self) {
        self.is_closing = true;
    }

    /// A job continues without its connection, because a repeated request may ask for its answer.
    async fn closed(self) {}
}
