//! A provider that answers from a list, and takes down what it was asked.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parlor_model::provider::{
    Completion, ModelCall, ModelMessage, Piece, Pieces, Provider, ProviderError, Request, StopReason,
};
use parlor_model::{Model, ModelAgent, Price};
use parlor_vocab::Usage;

/// What the provider does with one question.
pub(crate) type Answer = Vec<Result<Piece, ProviderError>>;

#[derive(Default)]
pub(crate) struct Scripted {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Request>>,
}

impl Scripted {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    /// What it was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.asked.lock().expect("nobody panicked").clone()
    }

    /// How many answers were not asked for.
    pub(crate) fn left(&self) -> usize {
        self.answers.lock().expect("nobody panicked").len()
    }
}

#[async_trait]
impl Provider for Scripted {
    async fn stream(&self, request: &Request) -> Result<Pieces, ProviderError> {
        assert_valid(request);
        self.asked.lock().expect("nobody panicked").push(request.clone());
        let answer =
            self.answers.lock().expect("nobody panicked").pop_front().expect("one question too many");
        // A script that does not end never ends, as a server that hangs.
        let ends = matches!(answer.last(), Some(Err(_) | Ok(Piece::Done(_))));
        let pieces = stream::iter(answer);
        Ok(if ends { pieces.boxed() } else { pieces.chain(stream::pending()).boxed() })
    }
}

/// Every provider would take it: it begins and ends with the user or a tool, nothing is empty, and every call
/// has a name of its own, and its result.
pub(crate) fn assert_valid(request: &Request) {
    let said = &request.messages;
    assert!(matches!(said.first(), Some(ModelMessage::User { .. })), "{said:?}");
    assert!(!matches!(said.last(), Some(ModelMessage::Model { .. })), "{said:?}");
    let mut ids = HashSet::new();
    for (place, part) in said.iter().enumerate() {
        match part {
            ModelMessage::User { text, .. } => assert!(!text.trim().is_empty()),
            ModelMessage::Model { text, calls, .. } => {
                assert!(!text.is_empty() || !calls.is_empty());
                let wanted: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                let brought: Vec<&str> = match said.get(place + 1) {
                    Some(ModelMessage::Results(results)) => {
                        results.iter().map(|result| result.id.as_str()).collect()
                    }
                    _ => Vec::new(),
                };
                assert_eq!(wanted, brought, "an orphan call");
                assert!(wanted.iter().all(|id| !id.is_empty() && ids.insert(*id)), "{wanted:?} twice");
            }
            ModelMessage::Results(results) => assert!(results.iter().all(|result| !result.text.is_empty())),
        }
    }
}

pub(crate) fn text(text: &str) -> Result<Piece, ProviderError> {
    Ok(Piece::Text(text.to_owned()))
}

pub(crate) fn thought(text: &str) -> Result<Piece, ProviderError> {
    Ok(Piece::Reasoning(text.to_owned()))
}

/// The end of an answer that took ten tokens to read and two to write.
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

/// The end of an answer with calls, each a tool and its input.
pub(crate) fn calls(calls: &[(&str, &str)]) -> Result<Piece, ProviderError> {
    let call = |(place, (tool, input)): (usize, &(&str, &str))| ModelCall {
        id: format!("c{place}"),
        tool: (*tool).to_owned(),
        input: (*input).to_owned(),
    };
    Ok(Piece::Done(Completion { calls: calls.iter().enumerate().map(call).collect(), ..completion() }))
}

pub(crate) fn busy() -> ProviderError {
    ProviderError::Busy { said: "slow down".to_owned(), retry_after: None }
}

pub(crate) fn broken() -> ProviderError {
    ProviderError::Broken { said: "cut".to_owned(), retry_after: None }
}

pub(crate) fn overflow() -> ProviderError {
    ProviderError::Overflow { said: "too long".to_owned() }
}

/// A model that costs a dollar for a thousand tokens.
pub(crate) fn model(name: &str, provider: &Arc<Scripted>) -> Model {
    let price = Price { input_micros: 1_000_000_000, output_micros: 1_000_000_000, cached_input_micros: 0 };
    let provider: Arc<dyn Provider> = Arc::clone(provider) as _;
    Model { price: Some(price), ..Model::new(name, format!("{name}-id"), provider) }
}

pub(crate) fn agent(provider: &Arc<Scripted>) -> ModelAgent {
    ModelAgent::new("Mind", model("fast", provider))
}
