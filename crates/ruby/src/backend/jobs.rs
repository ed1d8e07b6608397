//! Runs the job of one call.

use std::sync::Arc;

use parlor_vocab::{
    Caller, EvaluationResult, RubyFailure, RubyFailureKind, RubyJob, RubyReply, UpstreamError,
};

use super::known_losses::KnownLosses;
use super::{EvaluateAt, RubyShared, Upstream};
use crate::{Evaluation, RubyAnswer, RubyError, RubySource};

/// Runs a job when it is its turn. Console lines are evaluated in `console` if it is `Some`.
pub(super) async fn run_job(
    shared: &Arc<RubyShared>,
    console: Option<&dyn Upstream>,
    caller: &Caller,
    known_losses: &KnownLosses,
    job: RubyJob,
) -> RubyReply {
    let paths: &[String] = match &job {
        RubyJob::Upstream(call) => &call.paths,
        RubyJob::File { path } => std::slice::from_ref(path),
        RubyJob::Snippet { .. }
        | RubyJob::ConsoleLine { .. }
        | RubyJob::RestartRuby
        | RubyJob::ListResources
        | RubyJob::PingUpstream
        | RubyJob::Tool { .. } => &[],
    };
    for path in paths {
        let (path, workspace) = (path.clone(), caller.workspace.clone());
        if let Err(refused) =
            run_blocking(shared, move |shared| shared.roots.check(&path, workspace.as_deref())).await
        {
            return *refused;
        }
    }
    let needs_upstream = matches!(job, RubyJob::Upstream(_) | RubyJob::ListResources | RubyJob::PingUpstream);
    let upstream = shared
        .upstream
        .as_ref()
        .filter(|(_, evaluate_at)| needs_upstream || *evaluate_at == EvaluateAt::Upstream);
    match (job, upstream) {
        (RubyJob::Tool { name, input }, _) => shared.use_tool(&name, &input).await,
        (RubyJob::ConsoleLine { session, number, code }, _) => {
            let _turn = shared.turn.lock().await;
            let path = shared.sessions.save_snippet(&session, number, &code);
            match console {
                Some(console) => {
                    shared
                        .run_upstream(console, caller, &RubyJob::ConsoleLine { session, number, code })
                        .await
                }
                None => {
                    let source = RubySource::Console { path, code };
                    RubyReply::Evaluated(shared.evaluate(source, known_losses).await)
                }
            }
        }
        // Without a turn, because a ping is answered while an evaluation runs.
        (RubyJob::PingUpstream, Some((upstream, _))) => {
            shared.run_upstream(upstream.as_ref(), caller, &RubyJob::PingUpstream).await
        }
        (job, Some((upstream, _))) => {
            let _turn = shared.turn.lock().await;
            shared.run_upstream(upstream.as_ref(), caller, &job).await
        }
        (RubyJob::Snippet { code }, None) => shared.evaluate_snippet(code, known_losses).await,
        (RubyJob::File { path }, None) => {
            shared.evaluate_file(path, caller.workspace.clone(), known_losses).await
        }
        (RubyJob::RestartRuby, None) => {
            let _turn = shared.turn.lock().await;
            shared.console.mark("RELOAD");
            let replaced = shared.ruby.replace_worker().await;
            RubyReply::RubyRestarted(replaced.map(|losses| known_losses.learn(&losses)).map_err(failure))
        }
        (RubyJob::Upstream(_) | RubyJob::ListResources | RubyJob::PingUpstream, None) => {
            RubyReply::NoUpstream
        }
    }
}

impl RubyShared {
    /// Has the upstream runtime run a job. The caller holds the turn, except for a ping.
    async fn run_upstream(&self, upstream: &dyn Upstream, caller: &Caller, job: &RubyJob) -> RubyReply {
        if self.closing.is_cancelled() {
            return stopped_reply();
        }
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {
                let reason = "the server stopped while the call ran: the call had begun".to_owned();
                RubyReply::Upstream(Err(UpstreamError::Unanswered { reason }))
            }
            result = upstream.run_job(caller, job) => RubyReply::Upstream(result),
        }
    }

    async fn evaluate_snippet(&self, code: String, known_losses: &KnownLosses) -> RubyReply {
        let _turn = self.turn.lock().await;
        self.console.mark("EVAL_RUBY START");
        let evaluated = self.evaluate(RubySource::Snippet { code }, known_losses).await;
        self.console.print(&evaluated.printed, evaluated.omitted_bytes);
        match &evaluated.outcome {
            Ok(_) => self.console.mark("EVAL_RUBY END"),
            Err(failure) if failure.kind == RubyFailureKind::Syntax => {
                self.console.mark(&format!("EVAL_RUBY SYNTAX ERROR: {}", failure.message));
            }
            Err(failure) => self.console.mark(&format!("EVAL_RUBY ERROR: {}", failure.message)),
        }
        RubyReply::Evaluated(evaluated)
    }

    async fn evaluate_file(
        self: &Arc<Self>,
        path: String,
        workspace: Option<String>,
        known_losses: &KnownLosses,
    ) -> RubyReply {
        let _turn = self.turn.lock().await;
        let path_to_read = path.clone();
        let code =
            match run_blocking(self, move |shared| shared.roots.read(&path_to_read, workspace.as_deref()))
                .await
            {
                Ok(code) => code,
                Err(refused) => return *refused,
            };
        self.console.mark(&format!("EVAL_RUBY_FILE START: {path}"));
        let source = RubySource::File { path: code.path, content: code.content };
        let evaluated = self.evaluate(source, known_losses).await;
        self.console.print(&evaluated.printed, evaluated.omitted_bytes);
        match &evaluated.outcome {
            Ok(_) => self.console.mark("EVAL_RUBY_FILE END"),
            Err(failure) => self.console.mark(&format!("EVAL_RUBY_FILE ERROR: {}", failure.message)),
        }
        RubyReply::Evaluated(evaluated)
    }

    async fn evaluate(&self, source: RubySource, known_losses: &KnownLosses) -> EvaluationResult {
        let RubyAnswer { outcome, output, restart_reason, losses } =
            self.ruby.evaluate(Evaluation::new(source)).await;
        if let Some(how) = &restart_reason {
            self.console.mark(&format!("RUBY LOST: {how}"));
        }
        let tells_loss = outcome.as_ref().is_err_and(RubyError::is_state_lost);
        let unknown_loss = losses.and_then(|losses| known_losses.learn_from_answer(&losses, tells_loss));
        let restart_reason = restart_reason.or(unknown_loss);
        EvaluationResult {
            outcome: outcome.map_err(failure),
            printed: output.pieces.into_iter().map(|piece| (piece.stream, piece.text)).collect(),
            omitted_bytes: output.omitted_bytes,
            restart_reason,
        }
    }

    async fn use_tool(&self, name: &str, input: &str) -> RubyReply {
        let Some(tools) = &self.tools else { return RubyReply::UnknownTool { name: name.to_owned() } };
        let _slot = self.tool_slots.acquire().await;
        match tools.call(name, input).await {
            Some(outcome) => RubyReply::Tool(outcome),
            None => RubyReply::UnknownTool { name: name.to_owned() },
        }
    }

    pub(super) fn list_tools(&self) -> RubyReply {
        RubyReply::Tools(self.tools.as_ref().map(|tools| tools.list()).unwrap_or_default())
    }
}

/// The answer to a call that cannot be completed because the program ends.
pub(super) fn stopped_reply() -> RubyReply {
    RubyReply::Evaluated(EvaluationResult {
        outcome: Err(failure(RubyError::Stopped { started: false })),
        printed: Vec::new(),
        omitted_bytes: 0,
        restart_reason: None,
    })
}

/// The approximate size of a reply in memory.
pub(super) fn reply_bytes(reply: &RubyReply) -> usize {
    let failure_bytes = |failure: &RubyFailure| {
        failure.message.len() + failure.backtrace.iter().map(String::len).sum::<usize>()
    };
    let fixed_bytes = size_of::<RubyReply>();
    fixed_bytes
        + match reply {
            RubyReply::Evaluated(evaluated) => {
                let printed: usize = evaluated.printed.iter().map(|(_, text)| text.len()).sum();
                printed + evaluated.outcome.as_ref().map_or_else(failure_bytes, String::len)
            }
            RubyReply::RubyRestarted(Err(failure)) => failure_bytes(failure),
            RubyReply::Upstream(Ok(result)) => result.len(),
            RubyReply::Tool(Ok(output)) => {
                output.text.len() + output.images.iter().map(|image| image.bytes.len()).sum::<usize>()
            }
            // Replies with short texts only.
            RubyReply::RubyRestarted(Ok(()))
            | RubyReply::Upstream(Err(_))
            | RubyReply::Tool(Err(_))
            | RubyReply::PathRefused { .. }
            | RubyReply::PathInvalid { .. }
            | RubyReply::FileMissing { .. }
            | RubyReply::FileUnreadable { .. }
            | RubyReply::NoUpstream
            | RubyReply::Console(_)
            | RubyReply::ConsoleOpened { .. }
            | RubyReply::ConsoleRefused { .. }
            | RubyReply::Tools(_)
            | RubyReply::UnknownTool { .. } => 0,
        }
}

fn failure(error: RubyError) -> RubyFailure {
    let hint = error.hint().map(str::to_owned);
    // Some clients show only the message, and the loss of the state changes what the next call means.
    let message = match &hint {
        Some(hint) if error.is_state_lost() => format!("{error}\n{hint}"),
        Some(_) | None => error.to_string(),
    };
    let kind = match &error {
        RubyError::Raised(_) => RubyFailureKind::Raised,
        RubyError::Syntax(_) => RubyFailureKind::Syntax,
        RubyError::CodeTooLarge { .. }
        | RubyError::ValueTooLarge { .. }
        | RubyError::TimedOut { .. }
        | RubyError::Cancelled { .. }
        | RubyError::WorkerLost { .. }
        | RubyError::Stopped { started: true } => RubyFailureKind::Aborted,
        RubyError::NoRuby { .. }
        | RubyError::NotStarted { .. }
        | RubyError::TooManyWaiting { .. }
        | RubyError::Stopped { started: false } => RubyFailureKind::Unavailable,
    };
    let raised = match error {
        RubyError::Raised(raised) | RubyError::Syntax(raised) => Some(*raised),
        RubyError::CodeTooLarge { .. }
        | RubyError::ValueTooLarge { .. }
        | RubyError::TimedOut { .. }
        | RubyError::Cancelled { .. }
        | RubyError::WorkerLost { .. }
        | RubyError::NoRuby { .. }
        | RubyError::NotStarted { .. }
        | RubyError::TooManyWaiting { .. }
        | RubyError::Stopped { .. } => None,
    };
    match raised {
        Some(raised) => RubyFailure {
            kind,
            message,
            class: Some(raised.class),
            file: raised.file,
            line: raised.line,
            backtrace: raised.backtrace,
            hint,
        },
        None => {
            RubyFailure { kind, message, class: None, file: None, line: None, backtrace: Vec::new(), hint }
        }
    }
}

/// Runs work on files on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    shared: &Arc<RubyShared>,
    job: impl FnOnce(&RubyShared) -> Result<T, Box<RubyReply>> + Send + 'static,
) -> Result<T, Box<RubyReply>> {
    let shared = Arc::clone(shared);
    let done = tokio::task::spawn_blocking(move || job(&shared)).await;
    done.unwrap_or_else(|_| Err(Box::new(stopped_reply())))
}
