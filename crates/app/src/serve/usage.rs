//! What was used, as a plot wants it: every day, and every model.

use std::collections::BTreeMap;

use parlor_log::UsageLine;
use parlor_vocab::Timestamp;
use parlor_web::{DayUsage, ModelUsage, UsageReport};

/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// The day of a moment, UTC, since 1970.
pub(super) fn day_of(moment: Timestamp) -> i64 {
    moment.0.div_euclid(DAY)
}

/// Puts together what was used on the days from `first` to `last`.
pub(super) fn report(first: i64, last: i64, lines: &[UsageLine]) -> UsageReport {
    let mut days: Vec<DayUsage> =
        (first..=last).map(|day| DayUsage { date: date(day), ..DayUsage::default() }).collect();
    let mut models: BTreeMap<&str, ModelUsage> = BTreeMap::new();
    for line in lines {
        let usage = line.usage;
        let place = usize::try_from(line.day - first).ok();
        let Some(day) = place.and_then(|place| days.get_mut(place)) else { continue };
        day.runs += line.runs;
        day.failed += line.failed;
        day.input_tokens = day.input_tokens.saturating_add(usage.input_tokens);
        day.output_tokens = day.output_tokens.saturating_add(usage.output_tokens);
        day.cache_read_tokens = day.cache_read_tokens.saturating_add(usage.cache_read_tokens);
        day.cost_micros = day.cost_micros.saturating_add(usage.cost_micros);
        if !line.model.is_empty() {
            let model = models.entry(&line.model).or_default();
            model.input_tokens = model.input_tokens.saturating_add(usage.input_tokens);
            model.output_tokens = model.output_tokens.saturating_add(usage.output_tokens);
            model.cost_micros = model.cost_micros.saturating_add(usage.cost_micros);
        }
    }
    let models = models.into_iter().map(|(model, usage)| ModelUsage { model: model.to_owned(), ..usage });
    let mut models: Vec<ModelUsage> = models.collect();
    models.sort_by_key(|model| std::cmp::Reverse((model.cost_micros, model.output_tokens)));
    UsageReport { days, models }
}

fn date(day: i64) -> String {
    Timestamp(day.saturating_mul(DAY)).rfc3339().chars().take_while(|letter| *letter != 'T').collect()
}

#[cfg(test)]
mod tests {
    use parlor_vocab::Usage;

    use super::*;

    #[test]
    fn every_day_is_there_and_models_are_summed() {
        let line = |day, model: &str, runs, tokens| UsageLine {
            day,
            model: model.to_owned(),
            runs,
            failed: 0,
            usage: Usage { input_tokens: tokens, cost_micros: tokens, ..Usage::default() },
        };
        let lines = [
            line(9, "x", 1, 1),
            line(10, "", 2, 0),
            line(10, "a", 0, 3),
            line(12, "a", 0, 4),
            line(12, "b", 0, 9),
        ];
        let report = report(10, 12, &lines);
        let days: Vec<_> =
            report.days.iter().map(|day| (day.date.as_str(), day.runs, day.input_tokens)).collect();
        assert_eq!(days, [("1970-01-11", 2, 3), ("1970-01-12", 0, 0), ("1970-01-13", 0, 13)]);
        let models: Vec<_> =
            report.models.iter().map(|model| (model.model.as_str(), model.cost_micros)).collect();
        assert_eq!(models, [("b", 9), ("a", 7)]);
    }
}
