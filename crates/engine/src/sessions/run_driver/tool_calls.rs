//! Runs the tool calls of an agent, in parallel where the tools allow it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parlor_model::provider::{Picture, ToolSpec};
use parlor_model::{AgentContext, AvailableTools, ToolCall, ToolCallOutput, TurnError};
use parlor_tools::{
    FileChanges, NO_OUTPUT, PausedTime, ProgressPiece, ProgressReport, Sandbox, StreamRedactor, Tool,
    ToolContext, Toolbox, catch_panic, clean_long, progress,
};
use parlor_undo::{ChangeRecorder, HEARTBEAT};
use parlor_vocab::{
    ErrorScope, Failure, FailureCode, QuestionEvent, RunEvent, StepEvent, StepId, StreamKind, Timestamp,
    ToolCallId, ToolEvent, ToolImage, ToolOutput, truncate_middle,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::RunDriver;
use super::approval::Permission;
use super::hosts::{self, HostCall, SeenHosts};
use crate::redact::clean_failure;
use crate::sessions::undo::{background, record_changes};
use crate::step_titles::tool_step;

/// How many tool calls of one run execute at the same time.
const PARALLEL_CALLS: usize = 8;

/// The progress in percent that is reported when a tool starts, so that clients show it as working.
pub(super) const TOOL_STARTED_PERCENT: u8 = 10;

/// How often the deadline of a run is looked at, at most, while it waits for an answer.
const DEADLINE_STEP: Duration = Duration::from_millis(100);

/// At most one report of a call in this time is recorded.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of a report's text are recorded.
pub const REPORT_BYTES: usize = 1024;

/// The result of a call, or an error that ends the run.
type CallOutcome = Result<Result<ToolOutput, Failure>, TurnError>;

/// A call with its ids in the log.
pub(super) struct LoggedCall {
    pub(super) call: ToolCall,
    pub(super) id: ToolCallId,
    pub(super) step: StepId,
}

impl RunDriver {
    /// Runs all calls and returns their results in the same order. Cancels those that are not done by `until`.
    pub(super) async fn run_calls(
        &mut self,
        calls: Vec<ToolCall>,
        until: Option<Instant>,
    ) -> Result<Vec<Result<ToolOutput, Failure>>, TurnError> {
        if calls.iter().any(|call| call.refusal.is_none() && self.tools.needs_sources(&call.tool)) {
            self.admit_project_servers().await?;
        }
        self.end_step().await?;
        let mut logged_calls = Vec::with_capacity(calls.len());
        for call in calls {
            let id = self.call_inputs.take_id(&self.live, &call, &self.redact).await;
            let id = id.unwrap_or_else(|| ToolCallId::generate(self.deps.ids.next()));
            logged_calls.push(LoggedCall { call, id, step: self.new_step() });
        }
        self.call_inputs.close_all(&self.live);
        let cancel = self.context.cancel.child_token();
        let mut work = std::pin::pin!(self.run_logged_calls(&logged_calls, &cancel));
        let Some(until) = until else { return work.await };
        loop {
            // The time in which a run waits for answers does not count.
            let now = Instant::now();
            let deadline = until + self.waits.lock().unwrap_or_else(PoisonError::into_inner).so_far();
            if deadline <= now {
                cancel.cancel();
                return work.await;
            }
            tokio::select! {
                biased;
                results = &mut work => return results,
                () = sleep_until(deadline.max(now + DEADLINE_STEP)) => {}
            }
        }
    }

    async fn run_logged_calls(
        &self,
        calls: &[LoggedCall],
        cancel: &CancellationToken,
    ) -> Result<Vec<Result<ToolOutput, Failure>>, TurnError> {
        let (mut results, mut rest) = (Vec::with_capacity(calls.len()), calls);
        while let Some((first, others)) = rest.split_first() {
            // Neighbours that may run in parallel run together; all other calls run alone, also those that a person is
            // asked about: while a run waits for an answer, nothing else of it is at work.
            let mut companions = 0;
            if self.is_parallel(first).await {
                while let Some(other) = others.get(companions)
                    && self.is_parallel(other).await
                {
                    companions += 1;
                }
            }
            let (together, later) = rest.split_at(companions + 1);
            let work: Vec<BoxFuture<'_, CallOutcome>> =
                together.iter().map(|call| self.run_call(call, cancel).boxed()).collect();
            let outcomes: Vec<CallOutcome> = stream::iter(work).buffered(PARALLEL_CALLS).collect().await;
            for outcome in outcomes {
                results.push(outcome?);
            }
            rest = later;
        }
        Ok(results)
    }

    /// The tools that the agent may call. The first call asks the sources.
    pub(super) async fn available_tools(&mut self) -> Result<AvailableTools, TurnError> {
        self.admit_project_servers().await?;
        let (tools, cancel) = (Arc::clone(&self.tools), self.context.cancel.clone());
        let is_first = tools.has_sources();
        let collected = cancel.run_until_cancelled(tools.collect(&self.context.folder));
        let collected = collected.await.ok_or(TurnError::Stopped)?;
        // Subagents have the same tools, so it is said once.
        if is_first && !collected.notices.is_empty() {
            self.report_progress(&collected.notices.join(" ")).await?;
        }
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema().to_string(),
        };
        Ok(AvailableTools {
            tools: collected.toolbox.iter().map(spec).collect(),
            notices: collected.notices.clone(),
        })
    }

    async fn is_parallel(&self, LoggedCall { call, id, .. }: &LoggedCall) -> bool {
        call.refusal.is_some()
            || (self.tools.is_parallel(&call.tool)
                && !matches!(self.permission(call, id).await, Permission::Ask(_)))
    }

    /// Records a call, runs the tool, and records the result.
    async fn run_call(&self, logged: &LoggedCall, cancel: &CancellationToken) -> CallOutcome {
        let LoggedCall { call, id, step } = logged;
        let started_at = self.deps.clock.now();
        let (kind, title) = tool_step(&call.tool);
        let mut permission = match &call.refusal {
            Some(failure) => Permission::Refused(failure.clone()),
            None => self.permission(call, id).await,
        };
        let mut events = vec![
            RunEvent::Step(StepEvent::Started { step: step.clone(), kind, title }),
            RunEvent::Tool(ToolEvent::Called {
                step: step.clone(),
                call: id.clone(),
                tool: call.tool.clone(),
                input: call.input.clone(),
            }),
        ];
        if let Permission::Ask(question) = permission {
            events.push(RunEvent::Question(QuestionEvent::Asked((*question).clone())));
            self.record(events).await?;
            let outcome = self.await_answer(&question.id, self.deps.clock.now()).await?;
            permission = self.settled(&question, outcome).await;
            events = Vec::new();
        }
        self.make_call(logged, permission, events, started_at, cancel).await
    }

    /// Records `events` and then makes a call, unless it is refused; and records the result.
    pub(super) async fn make_call(
        &self,
        LoggedCall { call, id, step }: &LoggedCall,
        permission: Permission,
        mut events: Vec<RunEvent>,
        started_at: Timestamp,
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let notice = if let Permission::Granted(notice) = &permission { notice.clone() } else { None };
        events.push(RunEvent::Tool(ToolEvent::Progressed {
            call: id.clone(),
            message: notice.unwrap_or_else(|| "At work".to_owned()),
            percent: TOOL_STARTED_PERCENT,
        }));
        // Durable before the tool runs, so that after a crash the log shows that the tool may have run.
        self.record(events).await?;
        let result = match permission {
            Permission::Refused(failure) => Err(failure),
            Permission::Granted(_) | Permission::GrantedInFull | Permission::Ask(_)
                if cancel.is_cancelled() =>
            {
                Err(too_late())
            }
            Permission::Granted(_) => self.run_and_offer(call, id, cancel).await?,
            Permission::GrantedInFull => self.run_once_more(call, id, cancel).await,
            Permission::Ask(_) => unreachable!("a question is settled before its call is made"),
        };
        let duration_ms = self.since(started_at);
        let details = match &result {
            Ok(output) => self.tool_details(&call.tool, output).await,
            Err(_) => None,
        };
        let (step, call) = (step.clone(), id.clone());
        let is_stopped = self.context.cancel.is_cancelled();
        let result =
            if is_stopped { result.map_err(|failure| self.stopped_failure(failure)) } else { result };
        let mut events = match &result {
            Ok(output) => vec![
                RunEvent::Tool(ToolEvent::Completed {
                    call,
                    output: output.text.clone(),
                    details,
                    duration_ms,
                }),
                RunEvent::Step(StepEvent::Completed { step, summary: String::new(), duration_ms }),
            ],
            Err(failure) => vec![
                RunEvent::Tool(ToolEvent::Failed {
                    call: call.clone(),
                    failure: failure.clone(),
                    duration_ms,
                }),
                RunEvent::ErrorRaised { scope: ErrorScope::Tool(call), failure: failure.clone() },
                RunEvent::Step(StepEvent::Failed { step, failure: failure.clone(), duration_ms }),
            ],
        };
        if is_stopped {
            // The end of a stopped run is no error of the tool.
            events.retain(|event| !matches!(event, RunEvent::ErrorRaised { .. }));
        }
        // Recorded even if the run was stopped meanwhile: the result has what the tool had done until then.
        self.record_for(&self.run, events).await?;
        Ok(result)
    }

    /// The failure of a call that was cancelled because the run was stopped: the reason of the stop, and from the next
    /// line on the output that the tool had.
    fn stopped_failure(&self, failure: Failure) -> Failure {
        let cause = self.shared.stop_cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(cause) = cause.filter(|_| failure.code == FailureCode::Cancelled) else { return failure };
        let output = failure.message.split_once('\n').map(|(_, output)| output);
        let message = match output.filter(|output| output.trim_end() != NO_OUTPUT) {
            Some(output) => format!("{}\n{output}", cause.reason()),
            None => cause.reason().to_owned(),
        };
        Failure { message, ..failure }
    }

    /// Records how far a call is, if the last such record is old enough. An error shows itself at the next record.
    async fn report_call(
        &self,
        call: &ToolCallId,
        report: &ProgressReport,
        reported_at: &mut Option<Instant>,
    ) {
        if reported_at.is_some_and(|at: Instant| at.elapsed() < REPORT_INTERVAL) {
            return;
        }
        *reported_at = Some(Instant::now());
        let message = report.message.as_deref().map(|message| truncate_middle(message, REPORT_BYTES));
        let progressed = RunEvent::Tool(ToolEvent::Progressed {
            call: call.clone(),
            message: message.map_or_else(|| "At work".to_owned(), std::borrow::Cow::into_owned),
            percent: report.percent().unwrap_or(TOOL_STARTED_PERCENT).max(TOOL_STARTED_PERCENT),
        });
        let _ = self.record(vec![progressed]).await;
    }

    /// Runs a tool with this sandbox and shows its output while it runs. `seen` collects what it connects to.
    pub(super) async fn run_tool(
        &self,
        call: &ToolCallId,
        ToolCall { tool, input, .. }: &ToolCall,
        sandbox: Option<Arc<Sandbox>>,
        seen: &SeenHosts,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, Failure> {
        let stream = StreamKind::ToolOutput(call.clone());
        // A command that runs once more goes on in the same text.
        self.live.open_if_new(&self.run, &stream);
        let mut redactor = StreamRedactor::new(&self.redact);
        let (progress, mut pieces) = progress();
        let (mut reported_at, paused) = (None, PausedTime::default());
        let mut context = ToolContext {
            progress,
            cancel: cancel.clone(),
            sandbox,
            paused: paused.clone(),
            ..self.context.clone()
        };
        let reporting = self.rules.as_ref().zip(context.sandbox.as_deref());
        let reporting = reporting.and_then(|(rules, sandbox)| hosts::reporting(rules, sandbox));
        let requests = reporting.map(|(requests, sandbox)| {
            context.sandbox = Some(Arc::new(sandbox));
            requests
        });
        let host_call = HostCall { rules: self.rules.as_ref(), id: call, tool, seen, paused: &paused };
        let mut answers = std::pin::pin!(self.answer_hosts(requests, host_call));
        let work = async move {
            let toolbox = self.tools.with_tool(tool, &self.context.folder);
            let Some(toolbox) = cancel.run_until_cancelled(toolbox).await else { return Err(too_late()) };
            if let (Some(rules), Ok(found)) = (&self.rules, toolbox.find(tool)) {
                let request = self.request(rules, tool, &found.access(input)).await;
                context.opened_path_check = Some(rules.opened_path_check(request));
            }
            let may_change = toolbox.find(tool).map(|tool| tool.file_changes()) == Ok(FileChanges::Searched);
            if !(may_change && context.changes.is_enabled()) {
                let called = catch_panic(toolbox.call(tool, input, &context)).await;
                return called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")));
            }
            call_and_record(toolbox, tool, input, &context).await
        };
        let mut work = std::pin::pin!(work);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break result,
                Some(piece) = pieces.next() => match piece {
                    ProgressPiece::Text(text) => self.live.push(&stream, &redactor.push(&text)),
                    ProgressPiece::Report(report) => self.report_call(call, &report, &mut reported_at).await,
                },
                never = &mut answers => match never {},
            }
        };
        self.expire_host_question(seen).await;
        // The end of the call ends the output, not the drop of the last sender: a cancelled call can leave a blocking
        // thread behind that has a sender and that nothing can end.
        if let Some(piece) = pieces.pending() {
            self.live.push(&stream, &redactor.push(&piece));
        }
        self.live.push(&stream, &redactor.finish());
        // The agent gets the result without secrets too, because it sends what it reads to a provider.
        match result {
            Ok(output) => Ok(ToolOutput { text: clean_long(&self.redact, output.text).await, ..output }),
            Err(failure) => Err(clean_failure(&*self.redact, failure)),
        }
    }
}

/// Calls a tool that may change any file, and records what it changes.
async fn call_and_record(
    toolbox: &Toolbox,
    tool: &str,
    input: &str,
    context: &ToolContext,
) -> Result<ToolOutput, Failure> {
    let beside = background(&context.background);
    let before = record_changes(&context.changes, move |changes| changes.before_call(beside));
    // A file system can hang; a stopped run does not wait for it.
    let Some(()) = context.cancel.run_until_cancelled(before).await else { return Err(too_late()) };
    let mut call = std::pin::pin!(catch_panic(toolbox.call(tool, input, context)));
    let called = loop {
        tokio::select! {
            biased;
            called = &mut call => break called,
            () = tokio::time::sleep(HEARTBEAT) => context.changes.show_alive(),
        }
    };
    // Even after a stop: what was changed until then can be undone.
    record_changes(&context.changes, ChangeRecorder::after_call).await;
    called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")))
}

/// The failure of a call that was not started because the run's time was over.
fn too_late() -> Failure {
    let message = "it was not begun, because the time of the run is over".to_owned();
    Failure { code: FailureCode::Cancelled, message, retryable: false }
}

/// The result of a call for an agent that can see pictures.
pub(super) fn call_output(output: ToolOutput) -> ToolCallOutput {
    let picture = |image: &ToolImage| Picture::new(image.mime.as_str(), &image.bytes);
    ToolCallOutput { pictures: output.images.iter().map(picture).collect(), text: output.text }
}
