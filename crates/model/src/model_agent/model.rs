//! A configured model: its provider, its limits and its price.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::{Reasoning, Usage};

use crate::provider::Provider;

/// The context window of a model without a configured one, in tokens.
pub const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;

/// The smallest usable context window, in tokens: it holds a system prompt, some tools and an answer.
pub const MIN_CONTEXT_WINDOW: u64 = 4_000;

/// A model as the settings describe it. Cheap to clone.
#[derive(Clone)]
pub struct Model {
    /// The name in the settings.
    pub name: String,
    /// The provider's id of the model.
    pub id: String,
    /// The provider that runs it.
    pub provider: Arc<dyn Provider>,
    /// The context window in tokens: input and output of one request.
    pub context_window: u64,
    /// The most tokens of one answer; `None` uses the provider's default.
    pub max_output: Option<u32>,
    /// The default reasoning effort.
    pub reasoning: Option<Reasoning>,
    /// The price, if it is configured.
    pub price: Option<Price>,
}

impl Model {
    /// A model with default limits and without a price.
    pub fn new(name: impl Into<String>, id: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        Self {
            name: name.into(),
            id: id.into(),
            provider,
            context_window: DEFAULT_CONTEXT_WINDOW,
            max_output: None,
            reasoning: None,
            price: None,
        }
    }

    /// `usage` with its cost.
    pub(super) fn with_cost(&self, usage: Usage) -> Usage {
        Usage { cost_micros: self.price.map_or(0, |price| price.cost(usage)), ..usage }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

/// The price of a million tokens, in millionths of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Input tokens, including those that the provider writes to its cache.
    pub input_micros: u64,
    /// Tokens that the model writes.
    pub output_micros: u64,
    /// Input tokens that the provider reads from its cache.
    pub cached_input_micros: u64,
}

impl Price {
    /// The cost of `usage` in millionths of a dollar, rounded up.
    pub fn cost(&self, usage: Usage) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let all = part(usage.input_tokens.saturating_add(usage.cache_write_tokens), self.input_micros)
            + part(usage.output_tokens, self.output_micros)
            + part(usage.cache_read_tokens, self.cached_input_micros);
        u64::try_from(all.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_the_rounded_sum_of_its_parts() {
        let price = Price { input_micros: 1_000_000, output_micros: 4_000_000, cached_input_micros: 100_000 };
        let usage = Usage {
            input_tokens: 1000,
            output_tokens: 100,
            cache_read_tokens: 5,
            cache_write_tokens: 10,
            cost_micros: 0,
        };
        assert_eq!(price.cost(usage), 1010 + 400 + 1);
        assert_eq!(price.cost(Usage::default()), 0);
        let most = Usage { output_tokens: u64::MAX, ..Usage::default() };
        assert_eq!(price.cost(most), u64::MAX, "an invalid count does not overflow");
    }
}
