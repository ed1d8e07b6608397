//! The main loop of a turn: send a request, call the tools that the model asks for, and repeat until it calls none.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parlor_vocab::{Failure, FailureCode, Usage, truncate_middle};
use serde::de::IgnoredAny;

use super::attachments::{AttachedFile, FileBudget, FileForm, LoadedFiles, is_document};
use super::attempt::{Attempt, attempt};
use super::conversation::{BYTES_PER_TOKEN, COMPACT_AT_PERCENT, Conversation, KEEP_PERCENT, RESULT_PERCENT};
use super::history::{
    HistoryForm, HistoryMessage, failure_text, has_plain_form, model_messages, non_empty_output, user_message,
};
use super::limits::Budget;
use super::prompt::{Prompt, PromptSources};
use super::retry::{MAX_TRIES, retry_wait};
use super::summary::{Summary, as_message, excerpt, summarize};
use super::{MAX_CALLS, MAX_PICTURES, Model, ModelAgent};
use crate::provider::{CallResult, Completion, ModelCall, ModelMessage, ProviderError, StopReason, ToolSpec};
use crate::{AgentContext, AvailableTools, SpentSoFar, ToolCall, ToolCallOutput, Turn, TurnError};

/// The user message after an interrupted answer.
const CONTINUE: &str = "(The connection broke and your last message ends where it was cut off. Go on from there; do not \
repeat what you have said.)";

/// The result of a call may have at least this many bytes, however small the context window is.
const MIN_RESULT_BYTES: usize = 2_000;

/// The state of one turn.
pub(super) struct ModelRun<'a> {
    context: &'a mut dyn AgentContext,
    /// The current model, then the remaining fallbacks.
    models: Vec<Model>,
    conversation: Conversation,
    budget: Budget,
    /// The user's message.
    task: String,
    /// The names of the tools that the model may call.
    allowed_tools: Vec<String>,
    /// The ids of all calls in the conversation.
    call_ids: HashSet<String>,
    /// The plain form of the history and the user's message, if it differs from the full one. `None` once the model
    /// has begun to answer.
    plain_messages: Option<Vec<HistoryMessage>>,
    /// The messages that clients sent to the running turn before the model began to answer.
    steered: Vec<String>,
}

impl<'a> ModelRun<'a> {
    /// Builds the system prompt and the conversation.
    pub(super) async fn prepare(
        agent: &ModelAgent,
        turn: &Turn,
        context: &'a mut dyn AgentContext,
    ) -> Result<Self, TurnError> {
        let models = agent.models_for(turn.model.as_deref()).map_err(TurnError::Failed)?;
        let AvailableTools { tools, notices } = context.tools().await?;
        let tools: Arc<[ToolSpec]> = agent.allowed_tools(tools).into();
        let mut prompt =
            read_prompt(agent, turn, context.stopped(), &tools, PromptSources::WithProject).await?;
        // Whoever wrote the files of a project would otherwise tell the model what to do with the user's rights.
        if !prompt.project_files().is_empty() && !context.trusts_project(prompt.project_files()).await? {
            prompt = read_prompt(agent, turn, context.stopped(), &tools, PromptSources::UserOnly).await?;
        }
        let mut system = prompt.system();
        if !notices.is_empty() {
            system.push_str("\n\nTools that are missing in this turn:");
            notices.iter().for_each(|notice| system.push_str(&format!("\n- {notice}")));
        }
        let mut conversation = Conversation::new(context.redact(&system), Arc::clone(&tools));
        conversation.request().reasoning = turn.reasoning;
        let mut run = Self {
            context,
            models,
            conversation,
            budget: Budget::new(agent.limits),
            task: turn.input.text.clone(),
            allowed_tools: tools.iter().map(|tool| tool.name.clone()).collect(),
            call_ids: HashSet::new(),
            plain_messages: None,
            steered: Vec::new(),
        };
        let mut messages = model_messages(&turn.history, HistoryForm::Full);
        for item in &messages {
            if let ModelMessage::Model { calls, .. } = &item.message {
                run.call_ids.extend(calls.iter().map(|call| call.id.clone()));
            }
        }
        let resumed = model_messages(&turn.resumed, HistoryForm::Full);
        for item in &resumed {
            if let ModelMessage::Model { calls, .. } = &item.message {
                run.call_ids.extend(calls.iter().map(|call| call.id.clone()));
            }
        }
        let text = prompt.with_skills(&turn.input.text, |text| run.context.redact(text));
        let input = |form: FileForm| {
            let files = turn.input.media.iter().cloned().map(|media| AttachedFile { media, form });
            user_message(text.clone(), turn.message.clone(), files.collect())
        };
        if has_plain_form(&turn.history) || turn.input.media.iter().any(is_document) {
            let mut plain = model_messages(&turn.history, HistoryForm::Plain);
            plain.push(input(FileForm::WithoutDocuments));
            plain.extend(resumed.clone());
            run.plain_messages = Some(plain);
        }
        messages.push(input(FileForm::Full));
        messages.extend(resumed);
        run.push_history(messages).await?;
        for warning in prompt.warnings() {
            run.context.report_progress(&warning).await?;
        }
        for name in prompt.mentioned_names() {
            run.context.report_progress(&format!("Using the skill {name}")).await?;
        }
        Ok(run)
    }

    /// Runs the turn until the model makes no more calls.
    pub(super) async fn run(mut self) -> Result<(), TurnError> {
        loop {
            self.push_steering();
            let spent = if self.budget.needs_spending() {
                self.context.spent().await?
            } else {
                SpentSoFar::default()
            };
            self.budget.step(spent).map_err(TurnError::Failed)?;
            self.fit_window().await?;
            let (text, done) = self.answer().await?;
            let Completion { mut calls, stop, provider_state, .. } = done;
            let streamed_ids = self.make_ids_unique(&mut calls);
            if calls.is_empty() {
                self.check_answer(&text, stop).await?;
                self.conversation.push_answer(text, Vec::new(), provider_state);
                // The model also answers messages that arrived while it wrote.
                if !self.push_steering() {
                    return Ok(());
                }
                self.context.finish_step().await?;
                continue;
            }
            match stop {
                // Calls of a filtered answer are not executed.
                StopReason::Filtered => self.check_answer(&text, stop).await?,
                StopReason::Length => self.context.report_progress(&self.truncation_notice()).await?,
                StopReason::Complete => {}
            }
            let results = self.call_tools(&calls, streamed_ids, stop).await?;
            self.conversation.push_answer(text, calls, provider_state);
            self.conversation.push_results(results);
        }
    }

    /// Adds the history to the conversation, with its files. If there are too many files, the newest are included.
    async fn push_history(&mut self, messages: Vec<HistoryMessage>) -> Result<(), TurnError> {
        let model = &self.models[0];
        let takes_documents = model.provider.takes_documents();
        let mut budget =
            FileBudget::new(model.context_window, takes_documents, !self.allowed_tools.is_empty());
        let mut loaded: Vec<LoadedFiles> = Vec::with_capacity(messages.len());
        for item in messages.iter().rev() {
            loaded.push(budget.load(&item.files, self.context).await?);
        }
        for (item, files) in messages.into_iter().zip(loaded.into_iter().rev()) {
            match item.message {
                ModelMessage::User { mut text, .. } => {
                    for part in files.texts {
                        text.push_str("\n\n");
                        text.push_str(&part);
                    }
                    self.conversation.push_user_with_files(&text, files.pictures, files.documents, item.id);
                }
                ModelMessage::Results(mut results) => {
                    for result in &mut results {
                        result.text = self.truncate_result(&result.text);
                    }
                    self.conversation.push(ModelMessage::Results(results), item.id);
                }
                message @ ModelMessage::Model { .. } => self.conversation.push(message, item.id),
            }
        }
        Ok(())
    }

    /// Replaces the conversation by its plain form after `error`. Returns false if that cannot help: there is none,
    /// or the error does not depend on the conversation.
    async fn use_plain_form(&mut self, error: &ProviderError) -> Result<bool, TurnError> {
        match error {
            ProviderError::Busy { .. } | ProviderError::Auth { .. } | ProviderError::Settings { .. } => {
                return Ok(false);
            }
            ProviderError::Broken { .. } | ProviderError::Overflow { .. } | ProviderError::Refused { .. } => {
            }
        }
        let Some(messages) = self.plain_messages.take() else { return Ok(false) };
        let headline = format!(
            "{error}; trying again without documents, earlier images, and messages that got no answer"
        );
        self.context.report_progress(&headline).await?;
        self.conversation.clear();
        self.push_history(messages).await?;
        for text in &self.steered {
            self.conversation.push_user(text);
        }
        self.fit_window().await?;
        Ok(true)
    }

    /// Adds the messages that clients sent to the running turn. Returns whether there were any.
    fn push_steering(&mut self) -> bool {
        let messages = self.context.take_steering();
        for text in &messages {
            self.conversation.push_user(text);
        }
        let has_messages = !messages.is_empty();
        if self.plain_messages.is_some() {
            self.steered.extend(messages);
        }
        has_messages
    }

    /// Summarizes the older messages if the context window is nearly full.
    async fn fit_window(&mut self) -> Result<(), TurnError> {
        let window = self.models[0].context_window;
        if self.conversation.tokens() <= window * COMPACT_AT_PERCENT / 100 {
            return Ok(());
        }
        self.compact(window * KEEP_PERCENT / 100).await?;
        Ok(())
    }

    /// Replaces all but the newest `keep` tokens by a summary. Returns false if nothing can be removed.
    async fn compact(&mut self, keep: u64) -> Result<bool, TurnError> {
        let Some(count) = self.conversation.removable(keep) else { return Ok(false) };
        self.context.report_progress("Summarizing the older part of the conversation").await?;
        let mut stopped = self.context.stopped();
        let model = self.models[0].clone();
        let summary = tokio::select! {
            biased;
            () = &mut stopped => return Err(TurnError::Stopped),
            summary = summarize(&model, self.conversation.oldest(count)) => summary,
        };
        let summary = match summary {
            Ok(Summary { text, usage, bytes }) => {
                self.budget.add(usage, bytes);
                self.context.record_usage(usage, Some(&model.id)).await?;
                text
            }
            Err(error) => {
                self.context
                    .report_progress(&format!(
                        "No summary could be written ({error}); the oldest part is left out"
                    ))
                    .await?;
                excerpt(self.conversation.oldest(count))
            }
        };
        let task = (!self.conversation.user_text_after(count, &self.task)).then_some(self.task.as_str());
        let message = as_message(&summary, task);
        if let Some(kept_from) = self.conversation.replace_oldest(count, message) {
            // The session keeps the user's message, so its summary need not repeat it.
            self.context.replace_history_before(&kept_from, &as_message(&summary, None)).await?;
        }
        Ok(true)
    }

    /// Obtains an answer, with retries and fallback models.
    async fn answer(&mut self) -> Result<(String, Completion), TurnError> {
        let (mut tries, mut compacted) = (0, false);
        loop {
            let model = self.models[0].clone();
            let sent_bytes = self.conversation.bytes();
            let (error, mut text, shown) = match self.attempt(&model).await? {
                Attempt::Answered { text, done, bytes } => {
                    let usage = model.with_cost(done.usage);
                    self.budget.add(usage, sent_bytes + bytes);
                    self.context.record_usage(usage, Some(&model.id)).await?;
                    let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
                    self.conversation.set_counted(input);
                    self.plain_messages = None;
                    return Ok((text, done));
                }
                Attempt::TimedOut => return Err(TurnError::Failed(self.budget.time_limit_failure())),
                Attempt::Failed { error, text, shown, bytes } => {
                    // The model has not read a request that failed before its answer began.
                    let sent_bytes = if shown { sent_bytes } else { 0 };
                    self.budget.add(Usage::default(), sent_bytes + bytes);
                    (error, text, shown)
                }
            };
            tries += 1;
            if shown {
                self.plain_messages = None;
                let dropped = self.context.end_interrupted_step().await?;
                let kept = text.len().saturating_sub(dropped);
                text = text.get(..kept).unwrap_or(&text).to_owned();
            }
            if !text.trim().is_empty() {
                self.conversation.push_answer(text, Vec::new(), Default::default());
                self.conversation.push_user(CONTINUE);
            }
            if matches!(error, ProviderError::Overflow { .. }) && !compacted {
                compacted = true;
                // The real context window is smaller than the configured one.
                let keep = self.conversation.tokens().min(model.context_window) * KEEP_PERCENT / 100;
                if self.compact(keep).await? {
                    continue;
                }
            }
            match retry_wait(&error, tries) {
                Some(wait) => {
                    let seconds = wait.as_secs_f64();
                    let headline =
                        format!("{error}; trying again in {seconds:.1} s ({} of {MAX_TRIES})", tries + 1);
                    self.context.report_progress(&headline).await?;
                    self.context.sleep(wait).await?;
                }
                // One more request is enough: the plain form changes nothing about an outage.
                None if self.use_plain_form(&error).await? => tries = MAX_TRIES - 1,
                None => {
                    self.fall_back(&error).await?;
                    (tries, compacted) = (0, false);
                }
            }
        }
    }

    async fn attempt(&mut self, model: &Model) -> Result<Attempt, TurnError> {
        let chosen = self.conversation.request().reasoning;
        let request = self.conversation.request();
        request.model.clone_from(&model.id);
        request.max_output = model.max_output;
        request.reasoning = chosen.or(model.reasoning);
        let attempted = attempt(model, request, self.budget.deadline(), self.context).await;
        self.conversation.request().reasoning = chosen;
        attempted
    }

    /// Switches to the next fallback model. Fails with `error` if there is none.
    async fn fall_back(&mut self, error: &ProviderError) -> Result<(), TurnError> {
        let failed = self.models.remove(0);
        let Some(next) = self.models.first() else {
            return Err(TurnError::Failed(error.failure(&failed.name)));
        };
        let headline = format!("{} cannot answer ({error}); going on with {}", failed.name, next.name);
        self.conversation.change_provider();
        self.context.report_progress(&headline).await?;
        self.fit_window().await
    }

    /// Fails if an answer without calls is empty or was filtered. Reports an answer that was truncated.
    async fn check_answer(&mut self, text: &str, stop: StopReason) -> Result<(), TurnError> {
        let failed = |code: FailureCode, problem: &str| {
            let message = format!("{}: {problem}", self.models[0].name);
            Err(TurnError::Failed(Failure { code, message, retryable: false }))
        };
        match stop {
            StopReason::Filtered => failed(
                FailureCode::ModelRefused,
                "the provider's content filter blocked the answer; rephrase the request",
            ),
            StopReason::Length if text.trim().is_empty() => failed(
                FailureCode::AnswerTooLong,
                "the model thought until there was no room for an answer; ask for less, or allow it more tokens with \
                 max_output",
            ),
            StopReason::Length => self.context.report_progress(&self.truncation_notice()).await,
            StopReason::Complete if text.trim().is_empty() => {
                failed(FailureCode::EmptyAnswer, "the model said nothing; ask again, or choose another model")
            }
            StopReason::Complete => Ok(()),
        }
    }

    /// The notice for an answer that reached the output limit.
    fn truncation_notice(&self) -> String {
        let Model { name, max_output, .. } = &self.models[0];
        let limit = match max_output {
            Some(limit) => format!("after {limit} tokens, which is max_output of {name}"),
            None => format!("at the limit of {name}"),
        };
        format!("The answer was cut {limit}; ask it to go on, or allow more with max_output")
    }

    /// Gives each call a unique id. Some servers send no ids, or the same ones in every answer. Returns the original
    /// ids, under which the inputs were streamed.
    fn make_ids_unique(&mut self, calls: &mut [ModelCall]) -> Vec<String> {
        let streamed_ids = calls.iter().map(|call| call.id.clone()).collect();
        for call in calls {
            let mut number = self.call_ids.len();
            // A new id may exist already.
            while call.id.is_empty() || self.call_ids.contains(&call.id) {
                number += 1;
                call.id = format!("call_{number}");
            }
            self.call_ids.insert(call.id.clone());
        }
        streamed_ids
    }

    /// Executes the calls of an answer and returns their results for the model.
    async fn call_tools(
        &mut self,
        calls: &[ModelCall],
        streamed_ids: Vec<String>,
        stop: StopReason,
    ) -> Result<Vec<CallResult>, TurnError> {
        let tool_calls: Vec<ToolCall> = calls
            .iter()
            .zip(streamed_ids)
            .enumerate()
            .map(|(index, (call, streamed_id))| ToolCall {
                streamed_id,
                tool: call.tool.clone(),
                input: call.input.clone(),
                refusal: self.refusal(index, call, stop),
            })
            .collect();
        let outputs = self.context.call_tools(tool_calls, self.budget.deadline()).await?;
        self.budget.extend(self.context.take_waited());
        let results = calls.iter().zip(outputs).map(|(call, output)| {
            let failed = output.is_err();
            let ToolCallOutput { text, mut pictures } = output.unwrap_or_else(|failure| ToolCallOutput {
                text: failure_text(&failure),
                pictures: Vec::new(),
            });
            pictures.truncate(MAX_PICTURES);
            let text = self.truncate_result(&non_empty_output(text));
            CallResult { id: call.id.clone(), tool: call.tool.clone(), text, failed, pictures }
        });
        Ok(results.collect())
    }

    /// Why a call must not be executed, if so.
    fn refusal(&self, index: usize, call: &ModelCall, stop: StopReason) -> Option<Failure> {
        let ModelCall { tool, input, .. } = call;
        let refused = |code: FailureCode, message: String| Some(Failure { code, message, retryable: false });
        if index >= MAX_CALLS {
            return refused(
                FailureCode::TooManyCalls,
                format!("only {MAX_CALLS} calls are carried out at once; make it again"),
            );
        }
        if !self.allowed_tools.contains(tool) {
            let known = self.allowed_tools.join(", ");
            return refused(
                FailureCode::UnknownTool,
                format!("there is no tool `{tool}`; there are: {known}"),
            );
        }
        // An empty input is valid for a tool without arguments, but after a truncated answer it may be incomplete.
        if stop == StopReason::Length && serde_json::from_str::<IgnoredAny>(input).is_err() {
            return refused(
                FailureCode::InvalidInput,
                format!(
                    "your answer was cut at its limit before the input of {tool} was complete, so it was not \
                         called; call it again, with a shorter input if you can"
                ),
            );
        }
        None
    }

    /// Truncates a result to its share of the context window.
    fn truncate_result(&self, text: &str) -> String {
        let tokens = self.models[0].context_window * RESULT_PERCENT / 100;
        let bytes = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        truncate_middle(text, bytes.max(MIN_RESULT_BYTES)).into_owned()
    }
}

/// Reads the prompt, unless the run is stopped meanwhile.
async fn read_prompt(
    agent: &ModelAgent,
    turn: &Turn,
    stopped: BoxFuture<'static, ()>,
    tools: &[ToolSpec],
    sources: PromptSources,
) -> Result<Prompt, TurnError> {
    tokio::select! {
        biased;
        () = stopped => Err(TurnError::Stopped),
        prompt = Prompt::read(agent, turn, !tools.is_empty(), sources) => Ok(prompt),
    }
}
