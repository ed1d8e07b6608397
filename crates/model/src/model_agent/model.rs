//! A model that is configured: where it is, what it can read, and what it costs.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::{Reasoning, Usage};

use crate::provider::Provider;

/// How much a model can read if nobody says it, in tokens.
pub const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;

/// The smallest window that can be worked in: a prompt, some tools and an answer.
pub const MIN_CONTEXT_WINDOW: u64 = 4_000;

/// A model as the settings describe it. Cheap to clone.
#[derive(Clone)]
pub struct Model {
    /// What people call it.
    pub name: String,
    /// What its provider calls it.
    pub id: String,
    /// Whoever runs it.
    pub provider: Arc<dyn Provider>,
    /// How many tokens it can read and write in one call.
    pub context_window: u64,
    /// The most tokens of one answer; none leaves it to the provider.
    pub max_output: Option<u32>,
    /// How hard it is to think where nobody chooses.
    pub reasoning: Option<Reasoning>,
    /// What it costs, if that is known.
    pub price: Option<Price>,
}

impl Model {
    /// A model of which nothing but its names is known.
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

    /// `usage` with what it cost.
    pub(super) fn priced(&self, usage: Usage) -> Usage {
        Usage { cost_micros: self.price.map_or(0, |price| price.of(usage)), ..usage }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a million tokens cost, in millionths of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Tokens read, also those that a provider keeps for later.
    pub input_micros: u64,
    /// Tokens written.
    pub output_micros: u64,
    /// Tokens read from what a provider has kept.
    pub cached_input_micros: u64,
}

impl Price {
    /// What `usage` costs in millionths of a dollar, rounded up.
    pub fn of(&self, usage: Usage) -> u64 {
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
    fn a_cost_is_the_sum_of_its_parts_rounded_up() {
        let price = Price { input_micros: 1_000_000, output_micros: 4_000_000, cached_input_micros: 100_000 };
        let usage = Usage {
            input_tokens: 1000,
            output_tokens: 100,
            cache_read_tokens: 5,
            cache_write_tokens: 10,
            cost_micros: 0,
        };
        assert_eq!(price.of(usage), 1010 + 400 + 1);
        assert_eq!(price.of(Usage::default()), 0);
        let most = Usage { output_tokens: u64::MAX, ..Usage::default() };
        assert_eq!(price.of(most), u64::MAX, "a provider that counts wrongly breaks nothing");
    }
}
