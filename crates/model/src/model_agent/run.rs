//! One turn of a model: ask, call the tools that it wants, ask again, until it has nothing to call.

use std::collections::HashSet;
use std::sync::Arc;

use parlor_vocab::{Failure, FailureCode, Media, Usage};
use serde::de::IgnoredAny;

use super::attempt::{Attempt, attempt};
use super::context::{
    BYTES_PER_TOKEN, COMPACT_AT_PERCENT, Context, KEEP_PERCENT, RESULT_PERCENT, cut_middle,
};
use super::history::{Told, in_words, output, told, user_says};
use super::limits::Budget;
use super::prompt::Prompt;
use super::retry::{MAX_TRIES, wait};
use super::summary::{Summary, in_place, list, summarize};
use super::{MAX_CALLS, MAX_PICTURE_BYTES, MAX_PICTURES, Model, ModelAgent};
use crate::provider::{
    CallResult, Completion, ModelCall, ModelMessage, Picture, ProviderError, StopReason, ToolSpec,
};
use crate::{AgentContext, SpentSoFar, ToolCall, ToolCallOutput, Turn, TurnError};

/// What the model is told when the text that it wrote broke off.
const GO_ON: &str = "(The connection broke and your last message ends where it was cut off. Go on from there; do not \
repeat what you have said.)";

/// The smallest result that a tool may have in a small window, in bytes.
const MIN_RESULT_BYTES: usize = 2_000;

/// A turn that is being performed.
pub(super) struct Run<'a> {
    stage: &'a mut dyn AgentContext,
    /// The model that answers, then those that may take its place.
    models: Vec<Model>,
    context: Context,
    budget: Budget,
    /// What the user asked for.
    task: String,
    /// The names of the tools that may be called.
    allowed: Vec<String>,
    /// The names of all calls in the conversation.
    called: HashSet<String>,
}

impl<'a> Run<'a> {
    /// Reads all that the model has to know.
    pub(super) async fn prepare(
        agent: &ModelAgent,
        turn: &Turn,
        stage: &'a mut dyn AgentContext,
    ) -> Result<Self, TurnError> {
        let models = agent.models_for(turn.model.as_deref()).map_err(TurnError::Failed)?;
        let tools: Arc<[ToolSpec]> = agent.offered(stage.tools()).into();
        let mut stopped = stage.stopped();
        let prompt = tokio::select! {
            biased;
            () = &mut stopped => return Err(TurnError::Stopped),
            prompt = Prompt::read(agent, turn, !tools.is_empty()) => prompt,
        };
        let mut context = Context::new(stage.redact(&prompt.system()), Arc::clone(&tools));
        context.request().reasoning = turn.reasoning;
        let mut run = Self {
            stage,
            models,
            context,
            budget: Budget::new(agent.limits),
            task: turn.input.text.clone(),
            allowed: tools.iter().map(|tool| tool.name.clone()).collect(),
            called: HashSet::new(),
        };
        let mut all = told(&turn.history);
        for told in &all {
            if let ModelMessage::Model { calls, .. } = &told.said {
                run.called.extend(calls.iter().map(|call| call.id.clone()));
            }
        }
        let text = prompt.with_skills(&turn.input.text, |text| run.stage.redact(text));
        all.push(user_says(text, turn.message.clone(), turn.input.media.clone()));
        run.tell(all).await?;
        for warning in prompt.warnings() {
            run.stage.report_progress(&warning).await?;
        }
        for name in prompt.applied() {
            run.stage.report_progress(&format!("Using the skill {name}")).await?;
        }
        Ok(run)
    }

    /// Works until the model is done.
    pub(super) async fn work(mut self) -> Result<(), TurnError> {
        loop {
            self.listen();
            let spent = if self.budget.asks_for_spending() {
                self.stage.spent().await?
            } else {
                SpentSoFar::default()
            };
            self.budget.step(spent).map_err(TurnError::Failed)?;
            self.fit().await?;
            let (text, done) = self.answer().await?;
            let Completion { mut calls, stop, thread, .. } = done;
            let written = self.name_apart(&mut calls);
            if calls.is_empty() {
                self.ended(&text, stop).await?;
                self.context.model(text, Vec::new(), thread);
                // Text that came while the model wrote its last words is answered as well.
                if !self.listen() {
                    return Ok(());
                }
                self.stage.next_step().await?;
                continue;
            }
            match stop {
                // What the provider stopped is not to be carried out.
                StopReason::Filtered => self.ended(&text, stop).await?,
                StopReason::Length => self.stage.report_progress(&self.cut_short()).await?,
                StopReason::Complete => {}
            }
            let results = self.call(&calls, written, stop).await?;
            self.context.model(text, calls, thread);
            self.context.results(results);
        }
    }

    /// Puts the conversation before the model, with its images, the newest first if there are many.
    async fn tell(&mut self, all: Vec<Told>) -> Result<(), TurnError> {
        let (mut left, mut room) = (MAX_PICTURES, MAX_PICTURE_BYTES);
        let mut shown: Vec<(Vec<Picture>, Vec<String>)> = Vec::with_capacity(all.len());
        for told in all.iter().rev() {
            shown.push(self.show(&told.media, &mut left, &mut room).await?);
        }
        for (told, (pictures, named)) in all.into_iter().zip(shown.into_iter().rev()) {
            match told.said {
                ModelMessage::User { mut text, .. } => {
                    for name in named {
                        text.push('\n');
                        text.push_str(&name);
                    }
                    self.context.user(&text, pictures, told.message);
                }
                ModelMessage::Results(mut results) => {
                    for result in &mut results {
                        result.text = self.fitting(std::mem::take(&mut result.text));
                    }
                    self.context.push(ModelMessage::Results(results), told.message);
                }
                said @ ModelMessage::Model { .. } => self.context.push(said, told.message),
            }
        }
        Ok(())
    }

    /// The images among `media`, and the others by name.
    async fn show(
        &mut self,
        media: &[Media],
        left: &mut usize,
        room: &mut u64,
    ) -> Result<(Vec<Picture>, Vec<String>), TurnError> {
        let (mut pictures, mut named) = (Vec::new(), Vec::new());
        for file in media {
            let is_shown = file.mime.starts_with("image/") && *left > 0 && file.size <= *room;
            let bytes = if is_shown { self.stage.read_media(file, *room).await? } else { None };
            match bytes {
                Some(bytes) => {
                    *left -= 1;
                    *room = room.saturating_sub(bytes.len() as u64);
                    pictures.push(Picture::new(file.mime.as_str(), &bytes));
                }
                None => named
                    .push(format!("(A file came along: {}, {}, {} bytes)", file.name, file.mime, file.size)),
            }
        }
        Ok((pictures, named))
    }

    /// Takes in what was said to the run meanwhile, if anything was.
    fn listen(&mut self) -> bool {
        let heard = self.stage.take_steering();
        for text in &heard {
            self.context.user(text, Vec::new(), None);
        }
        !heard.is_empty()
    }

    /// Summarizes the older part of the conversation if the window would overflow.
    async fn fit(&mut self) -> Result<(), TurnError> {
        let window = self.models[0].context_window;
        if self.context.tokens() <= window * COMPACT_AT_PERCENT / 100 {
            return Ok(());
        }
        self.compact(window * KEEP_PERCENT / 100).await?;
        Ok(())
    }

    /// Puts a summary in the place of all but the newest `keep` tokens. False if there is nothing that
    /// could go.
    async fn compact(&mut self, keep: u64) -> Result<bool, TurnError> {
        let Some(parts) = self.context.cut(keep) else { return Ok(false) };
        self.stage.report_progress("Summarizing the older part of the conversation").await?;
        let mut stopped = self.stage.stopped();
        let model = self.models[0].clone();
        let summary = tokio::select! {
            biased;
            () = &mut stopped => return Err(TurnError::Stopped),
            summary = summarize(&model, self.context.oldest(parts)) => summary,
        };
        let summary = match summary {
            Ok(Summary { text, usage, bytes }) => {
                self.budget.add(usage, bytes);
                self.stage.record_usage(usage, Some(&model.name)).await?;
                text
            }
            Err(error) => {
                self.stage
                    .report_progress(&format!(
                        "No summary could be written ({error}); the oldest part is left out"
                    ))
                    .await?;
                list(self.context.oldest(parts))
            }
        };
        let task = (!self.context.says_after(parts, &self.task)).then_some(self.task.as_str());
        let in_context = in_place(&summary, task);
        if let Some(kept_from) = self.context.replace_oldest(parts, in_context) {
            // The session keeps the request itself.
            self.stage.replace_history_before(&kept_from, &in_place(&summary, None)).await?;
        }
        Ok(true)
    }

    /// An answer, however often it has to be asked for, of whichever model.
    async fn answer(&mut self) -> Result<(String, Completion), TurnError> {
        let (mut tries, mut compacted) = (0, false);
        loop {
            let model = self.models[0].clone();
            let sent = self.context.bytes();
            let (error, mut text, shown) = match self.attempt(&model).await? {
                Attempt::Answered { text, done, bytes } => {
                    let usage = model.priced(done.usage);
                    self.budget.add(usage, sent + bytes);
                    self.stage.record_usage(usage, Some(&model.name)).await?;
                    let read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
                    self.context.count(read);
                    return Ok((text, done));
                }
                Attempt::Late => return Err(TurnError::Failed(self.budget.late())),
                Attempt::Broken { error, text, shown, bytes } => {
                    // What was refused was not read.
                    let sent = if shown { sent } else { 0 };
                    self.budget.add(Usage::default(), sent + bytes);
                    (error, text, shown)
                }
            };
            tries += 1;
            if shown {
                let unsaid = self.stage.end_interrupted_step().await?;
                let said = text.len().saturating_sub(unsaid);
                text = text.get(..said).unwrap_or(&text).to_owned();
            }
            if !text.trim().is_empty() {
                self.context.model(text, Vec::new(), Default::default());
                self.context.user(GO_ON, Vec::new(), None);
            }
            if matches!(error, ProviderError::Overflow { .. }) && !compacted {
                compacted = true;
                // The window is smaller than it was said to be: what is here is already too much.
                let keep = self.context.tokens().min(model.context_window) * KEEP_PERCENT / 100;
                if self.compact(keep).await? {
                    continue;
                }
            }
            match wait(&error, tries) {
                Some(pause) => {
                    let seconds = pause.as_secs_f64();
                    let headline =
                        format!("{error}; trying again in {seconds:.1} s ({} of {MAX_TRIES})", tries + 1);
                    self.stage.report_progress(&headline).await?;
                    self.stage.sleep(pause).await?;
                }
                None => {
                    self.fall_back(&error).await?;
                    (tries, compacted) = (0, false);
                }
            }
        }
    }

    async fn attempt(&mut self, model: &Model) -> Result<Attempt, TurnError> {
        let chosen = self.context.request().reasoning;
        let request = self.context.request();
        request.model.clone_from(&model.id);
        request.max_output = model.max_output;
        request.reasoning = chosen.or(model.reasoning);
        let attempted = attempt(model, request, self.budget.deadline(), self.stage).await;
        self.context.request().reasoning = chosen;
        attempted
    }

    /// Goes on with the next model, if there is one.
    async fn fall_back(&mut self, error: &ProviderError) -> Result<(), TurnError> {
        let failed = self.models.remove(0);
        let Some(next) = self.models.first() else {
            return Err(TurnError::Failed(error.failure(&failed.name)));
        };
        let headline = format!("{} cannot answer ({error}); going on with {}", failed.name, next.name);
        self.context.change_provider();
        self.stage.report_progress(&headline).await?;
        self.fit().await
    }

    /// Whether an answer is one, that makes no calls or may make none.
    async fn ended(&mut self, text: &str, stop: StopReason) -> Result<(), TurnError> {
        let failed = |code: FailureCode, what: &str| {
            let message = format!("{}: {what}", self.models[0].name);
            Err(TurnError::Failed(Failure { code, message, retryable: false }))
        };
        match stop {
            StopReason::Filtered => {
                failed(FailureCode::ModelRefused, "the provider let the answer not pass; say it differently")
            }
            StopReason::Length if text.trim().is_empty() => failed(
                FailureCode::AnswerTooLong,
                "the model thought until there was no room for an answer; ask for less, or allow it more tokens with \
                 max_output",
            ),
            StopReason::Length => self.stage.report_progress(&self.cut_short()).await,
            StopReason::Complete if text.trim().is_empty() => {
                failed(FailureCode::EmptyAnswer, "the model said nothing; ask again, or choose another model")
            }
            StopReason::Complete => Ok(()),
        }
    }

    /// What is told of an answer that was cut at its limit.
    fn cut_short(&self) -> String {
        let Model { name, max_output, .. } = &self.models[0];
        let limit = match max_output {
            Some(most) => format!("after {most} tokens, which is max_output of {name}"),
            None => format!("at the limit of {name}"),
        };
        format!("The answer was cut {limit}; ask it to go on, or allow more with max_output")
    }

    /// Gives calls names of their own. Some servers give none, or the same ones in every answer. Gives back their old
    /// names, under which they were written.
    fn name_apart(&mut self, calls: &mut [ModelCall]) -> Vec<String> {
        let written = calls.iter().map(|call| call.id.clone()).collect();
        for call in calls {
            let mut number = self.called.len();
            // A name that is made up may be there as well.
            while call.id.is_empty() || self.called.contains(&call.id) {
                number += 1;
                call.id = format!("call_{number}");
            }
            self.called.insert(call.id.clone());
        }
        written
    }

    /// Carries out what the model wants, and gives back what it gets to read.
    async fn call(
        &mut self,
        calls: &[ModelCall],
        written: Vec<String>,
        stop: StopReason,
    ) -> Result<Vec<CallResult>, TurnError> {
        let wanted: Vec<ToolCall> = calls
            .iter()
            .zip(written)
            .enumerate()
            .map(|(place, (call, name))| ToolCall {
                name,
                tool: call.tool.clone(),
                input: call.input.clone(),
                refusal: self.refusal(place, call, stop),
            })
            .collect();
        let given = self.stage.call_tools(wanted, self.budget.deadline()).await?;
        let results = calls.iter().zip(given).map(|(call, given)| {
            let failed = given.is_err();
            let ToolCallOutput { text, mut pictures } = given
                .unwrap_or_else(|failure| ToolCallOutput { text: in_words(&failure), pictures: Vec::new() });
            pictures.truncate(MAX_PICTURES);
            let text = self.fitting(output(text));
            CallResult { id: call.id.clone(), tool: call.tool.clone(), text, failed, pictures }
        });
        Ok(results.collect())
    }

    fn refusal(&self, place: usize, call: &ModelCall, stop: StopReason) -> Option<Failure> {
        let ModelCall { tool, input, .. } = call;
        let refused = |code: FailureCode, message: String| Some(Failure { code, message, retryable: false });
        if place >= MAX_CALLS {
            return refused(
                FailureCode::TooManyCalls,
                format!("only {MAX_CALLS} calls are carried out at once; make it again"),
            );
        }
        if !self.allowed.contains(tool) {
            let known = self.allowed.join(", ");
            return refused(
                FailureCode::UnknownTool,
                format!("there is no tool `{tool}`; there are: {known}"),
            );
        }
        // No input at all may be that of a tool that takes nothing, but not here: nobody knows what was to follow.
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

    /// A result that leaves room for others.
    fn fitting(&self, text: String) -> String {
        let tokens = self.models[0].context_window * RESULT_PERCENT / 100;
        let bytes = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
        cut_middle(text, bytes.max(MIN_RESULT_BYTES))
    }
}
