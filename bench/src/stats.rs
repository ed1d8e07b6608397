//! Helpers for figures: the median, the spread, and whether a bound is held.

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The figures of all rounds.
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: Vec<f64>) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { least, median: median(values), most }
    }
}

/// The word in a table for a bound that is held or missed.
pub(crate) fn verdict(is_held: bool) -> &'static str {
    if is_held { "held" } else { "**missed**" }
}
