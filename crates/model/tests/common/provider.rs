//! A provider that answers from a list and records the requests.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parlor_model::provider::{
    Completion, ModelCall, ModelMessage, Piece, Pieces, Provider, ProviderError, Request, StopReason,
};
use parlor_model::{Model, ModelAgent, Price};
use parlor_vocab::Usage;

/// The pieces of one answer.
pub(crate) type Answer = Vec<Result<Piece, ProviderError>>;

#[derive(Default)]
pub(crate) struct ScriptedProvider {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<Request>>,
}

impl ScriptedProvider {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), requests: Mutex::default() })
    }

    /// The requests, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no test panicked").clone()
    }

    /// How many answers were not used.
    pub(crate) fn answers_left(&self) -> usize {
        self.answers.lock().expect("no test panicked").len()
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError> {
        assert_valid(request);
        self.requests.lock().expect("no test panicked").push(request.clone());
        let answer =
            self.answers.lock().expect("no test panicked").pop_front().expect("one request too many");
        // An answer without an end hangs.
        let ends = matches!(answer.last(), Some(Err(_) | Ok(Piece::Done(_))));
        let pieces = stream::iter(answer);
        Ok(if ends { pieces.boxed() } else { pieces.chain(stream::pending()).boxed() })
    }
}

/// Asserts that every provider would accept the request: it begins with the user, does not end with the model, no
/// message is empty, and every call has a unique id and a result.
pub(crate) fn assert_valid(request: &Request) {
    let messages = &request.messages;
    assert!(matches!(messages.first(), Some(ModelMessage::User { .. })), "{messages:?}");
    assert!(!matches!(messages.last(), Some(ModelMessage::Model { .. })), "{messages:?}");
    let mut ids = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        match message {
            ModelMessage::User { text, .. } => assert!(!text.trim().is_empty()),
            ModelMessage::Model { text, calls, .. } => {
                assert!(!text.is_empty() || !calls.is_empty());
                let call_ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                let result_ids: Vec<&str> = match messages.get(index + 1) {
                    Some(ModelMessage::Results(results)) => {
                        results.iter().map(|result| result.id.as_str()).collect()
                    }
                    _ => Vec::new(),
                };
                assert_eq!(call_ids, result_ids, "a call without a result");
                assert!(
                    call_ids.iter().all(|id| !id.is_empty() && ids.insert(*id)),
                    "not unique: {call_ids:?}"
                );
            }
            ModelMessage::Results(results) => assert!(results.iter().all(|result| !result.text.is_empty())),
        }
    }
}

pub(crate) fn text(text: &str) -> Result<Piece, ProviderError> {
    Ok(Piece::Text(text.to_owned()))
}

pub(crate) fn reasoning(text: &str) -> Result<Piece, ProviderError> {
    Ok(Piece::Reasoning(text.to_owned()))
}

/// The end of an answer with ten input and two output tokens.
pub(crate) fn done() -> Result<Piece, ProviderError> {
    Ok(Piece::Done(completion()))
}

pub(crate) fn completion() -> Completion {
    Completion {
        usage: Usage { input_tokens: 10, output_tokens: 2, ..Usage::default() },
        ..Completion::default()
    }
}

pub(crate) fn stopped(stop: StopReason) -> Result<Piece, ProviderError> {
    Ok(Piece::Done(Completion { stop, ..completion() }))
}

/// The end of an answer with calls: a tool and an input each.
pub(crate) fn calls(calls: &[(&str, &str)]) -> Result<Piece, ProviderError> {
    let call = |(index, (tool, input)): (usize, &(&str, &str))| ModelCall {
        id: format!("c{index}"),
        tool: (*tool).to_owned(),
        input: (*input).to_owned(),
    };
    Ok(Piece::Done(Completion { calls: calls.iter().enumerate().map(call).collect(), ..completion() }))
}

pub(crate) fn busy() -> ProviderError {
    ProviderError::Busy { message: "slow down".to_owned(), retry_after: None }
}

pub(crate) fn broken() -> ProviderError {
    ProviderError::Broken { message: "cut".to_owned(), retry_after: None }
}

pub(crate) fn overflow() -> ProviderError {
    ProviderError::Overflow { message: "too long".to_owned() }
}

/// A model that costs a dollar for a thousand tokens.
pub(crate) fn model(name: &str, provider: &Arc<ScriptedProvider>) -> Model {
    let price = Price { input_micros: 1_000_000_000, output_micros: 1_000_000_000, cached_input_micros: 0 };
    let provider: Arc<dyn Provider> = Arc::clone(provider) as _;
    Model { price: Some(price), ..Model::new(name, format!("{name}-id"), provider) }
}

pub(crate) fn agent(provider: &Arc<ScriptedProvider>) -> ModelAgent {
    ModelAgent::new("Model", model("fast", provider))
}
