//! Carries out one call.

use std::sync::Arc;

use parlor_ruby::{Answer, Evaluation, RubyError, Source};
use parlor_vocab::{
    Caller, Evaluated, RubyFailure, RubyFailureKind, ToolEntry, ToolOutput, Work, WorkshopReply,
};

use crate::contain::contain;

use super::{Evaluates, Shop, SketchUp};

/// Does what is wanted, in its turn. Lines of a console are evaluated in `console`, if there is one.
pub(super) async fn perform(
    shop: &Arc<Shop>,
    console: Option<&dyn SketchUp>,
    caller: &Caller,
    work: Work,
) -> WorkshopReply {
    let paths: &[String] = match &work {
        Work::Model(call) => &call.paths,
        Work::File { path } => std::slice::from_ref(path),
        Work::Snippet { .. }
        | Work::Line { .. }
        | Work::ReplaceRuby
        | Work::ListResources
        | Work::Tool { .. } => &[],
    };
    for path in paths {
        let (path, workspace) = (path.clone(), caller.workspace.clone());
        if let Err(refused) = blocking(shop, move |shop| shop.reach.check(&path, workspace.as_deref())).await
        {
            return *refused;
        }
    }
    let needs_sketchup = matches!(work, Work::Model(_) | Work::ListResources);
    let sketchup =
        shop.sketchup.as_ref().filter(|(_, evaluates)| needs_sketchup || *evaluates == Evaluates::There);
    match (work, sketchup) {
        (Work::Tool { name, input }, _) => shop.use_tool(&name, &input).await,
        (Work::Line { session, number, code }, _) => {
            let _turn = shop.lane.lock().await;
            let path = shop.sessions.keep(&session, number, &code);
            match console {
                Some(console) => shop.ask(console, caller, &Work::Line { session, number, code }).await,
                None => WorkshopReply::Evaluated(shop.evaluate(Source::Console { path, code }).await),
            }
        }
        (work, Some((sketchup, _))) => {
            let _turn = shop.lane.lock().await;
            shop.ask(sketchup.as_ref(), caller, &work).await
        }
        (Work::Snippet { code }, None) => shop.evaluate_snippet(code).await,
        (Work::File { path }, None) => shop.evaluate_file(path, caller.workspace.clone()).await,
        (Work::ReplaceRuby, None) => {
            let _turn = shop.lane.lock().await;
            shop.console.mark("RELOAD");
            WorkshopReply::RubyReplaced(shop.ruby.replace_worker().await.map_err(failure))
        }
        (Work::Model(_) | Work::ListResources, None) => WorkshopReply::NoSketchUp,
    }
}

impl Shop {
    /// Has SketchUp do something. Whoever asks has the lane.
    async fn ask(&self, sketchup: &dyn SketchUp, caller: &Caller, work: &Work) -> WorkshopReply {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => broken_off(),
            done = sketchup.perform(caller, work) => WorkshopReply::Model(done),
        }
    }

    async fn evaluate_snippet(&self, code: String) -> WorkshopReply {
        let _turn = self.lane.lock().await;
        self.console.mark("EVAL_RUBY START");
        let evaluated = self.evaluate(Source::Snippet { code }).await;
        self.console.print(&evaluated.printed, evaluated.cut);
        match &evaluated.outcome {
            Ok(_) => self.console.mark("EVAL_RUBY END"),
            Err(failure) if failure.kind == RubyFailureKind::Syntax => {
                self.console.mark(&format!("EVAL_RUBY SYNTAX ERROR: {}", failure.message));
            }
            Err(failure) => self.console.mark(&format!("EVAL_RUBY ERROR: {}", failure.message)),
        }
        WorkshopReply::Evaluated(evaluated)
    }

    async fn evaluate_file(self: &Arc<Self>, path: String, workspace: Option<String>) -> WorkshopReply {
        let _turn = self.lane.lock().await;
        let wanted = path.clone();
        let code = match blocking(self, move |shop| shop.reach.read(&wanted, workspace.as_deref())).await {
            Ok(code) => code,
            Err(refused) => return *refused,
        };
        self.console.mark(&format!("EVAL_RUBY_FILE START: {path}"));
        let evaluated = self.evaluate(Source::File { path: code.path, content: code.content }).await;
        self.console.print(&evaluated.printed, evaluated.cut);
        match &evaluated.outcome {
            Ok(_) => self.console.mark("EVAL_RUBY_FILE END"),
            Err(failure) => self.console.mark(&format!("EVAL_RUBY_FILE ERROR: {}", failure.message)),
        }
        WorkshopReply::Evaluated(evaluated)
    }

    async fn evaluate(&self, source: Source) -> Evaluated {
        let Answer { outcome, output, lost_before } = self.ruby.evaluate(Evaluation::new(source)).await;
        if let Some(how) = &lost_before {
            self.console.mark(&format!("RUBY LOST: {how}"));
        }
        Evaluated {
            outcome: outcome.map_err(failure),
            printed: output.pieces.into_iter().map(|piece| (piece.stream, piece.text)).collect(),
            cut: output.cut,
            lost_before,
        }
    }

    async fn use_tool(&self, name: &str, input: &str) -> WorkshopReply {
        let found = self.tools.as_ref().and_then(|(tools, context)| Some((tools.find(name).ok()?, context)));
        let Some((tool, context)) = found else {
            return WorkshopReply::UnknownTool { name: name.to_owned() };
        };
        let _place = self.tool_places.acquire().await;
        let called = contain(tool.call(input, context)).await;
        let called = called.unwrap_or_else(|panicked| Err(panicked.failure("The tool")));
        let outcome = called.map(|output| ToolOutput {
            text: output.text,
            images: output.images.into_iter().map(|image| (image.mime.to_owned(), image.bytes)).collect(),
        });
        WorkshopReply::Tool(outcome)
    }

    pub(super) fn list_tools(&self) -> WorkshopReply {
        let tools = self.tools.iter().flat_map(|(tools, _)| tools.iter()).map(|tool| ToolEntry {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema().to_string(),
        });
        WorkshopReply::Tools(tools.collect())
    }
}

/// The answer to a call that will have no other: the program ends.
pub(super) fn broken_off() -> WorkshopReply {
    WorkshopReply::Evaluated(Evaluated {
        outcome: Err(failure(RubyError::Stopped)),
        printed: Vec::new(),
        cut: 0,
        lost_before: None,
    })
}

/// About how many bytes an answer has.
pub(super) fn size(reply: &WorkshopReply) -> usize {
    let of_failure = |failure: &RubyFailure| {
        failure.message.len() + failure.backtrace.iter().map(String::len).sum::<usize>()
    };
    let least = size_of::<WorkshopReply>();
    least
        + match reply {
            WorkshopReply::Evaluated(evaluated) => {
                let printed: usize = evaluated.printed.iter().map(|(_, text)| text.len()).sum();
                printed + evaluated.outcome.as_ref().map_or_else(of_failure, String::len)
            }
            WorkshopReply::RubyReplaced(Err(failure)) => of_failure(failure),
            WorkshopReply::Model(Ok(result)) => result.len(),
            WorkshopReply::Tool(Ok(output)) => {
                output.text.len() + output.images.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
            }
            // Short texts.
            WorkshopReply::RubyReplaced(Ok(()))
            | WorkshopReply::Model(Err(_))
            | WorkshopReply::Tool(Err(_))
            | WorkshopReply::PathRefused { .. }
            | WorkshopReply::PathInvalid { .. }
            | WorkshopReply::FileMissing { .. }
            | WorkshopReply::FileUnreadable { .. }
            | WorkshopReply::NoSketchUp
            | WorkshopReply::Console(_)
            | WorkshopReply::ConsoleOpened { .. }
            | WorkshopReply::ConsoleRefused { .. }
            | WorkshopReply::Tools(_)
            | WorkshopReply::UnknownTool { .. } => 0,
        }
}

fn failure(error: RubyError) -> RubyFailure {
    let (message, hint) = (error.to_string(), error.hint().map(str::to_owned));
    let kind = match &error {
        RubyError::Raised(_) => RubyFailureKind::Raised,
        RubyError::Syntax(_) => RubyFailureKind::Syntax,
        RubyError::CodeTooLarge { .. }
        | RubyError::ValueTooLarge { .. }
        | RubyError::TimedOut { .. }
        | RubyError::Cancelled { .. }
        | RubyError::WorkerLost { .. } => RubyFailureKind::Broken,
        RubyError::NoRuby { .. }
        | RubyError::NotStarted { .. }
        | RubyError::TooManyWaiting { .. }
        | RubyError::Stopped => RubyFailureKind::Unavailable,
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
        | RubyError::Stopped => None,
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

/// Looks at files on a thread that may block.
async fn blocking<T: Send + 'static>(
    shop: &Arc<Shop>,
    work: impl FnOnce(&Shop) -> Result<T, Box<WorkshopReply>> + Send + 'static,
) -> Result<T, Box<WorkshopReply>> {
    let shop = Arc::clone(shop);
    let done = tokio::task::spawn_blocking(move || work(&shop)).await;
    done.unwrap_or_else(|_| Err(Box::new(broken_off())))
}
