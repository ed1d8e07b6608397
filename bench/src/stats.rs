//! Helpers for figures: the median, and whether a bound is held.

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The word in a table for a bound that is held or missed.
pub(crate) fn verdict(is_held: bool) -> &'static str {
    if is_held { "held" } else { "**missed**" }
}
