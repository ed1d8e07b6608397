//! The counters of the server, in the format of Prometheus.
//!
//! Code that does something counts it here. No code reads the counters to decide anything.

use std::sync::atomic::AtomicU64;

use parlor_vocab::Usage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The content type of what [`Metrics::render`] writes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The upper bounds of the histogram of append times, in seconds.
const APPEND_SECONDS: [f64; 12] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The upper bounds of the histograms of runs and of waiting inputs, in seconds.
const RUN_SECONDS: [f64; 12] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 7200.0];

/// The label of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// Why something was refused: one of a few constant words.
    pub reason: &'static str,
}

/// The label of the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// `completed`, `failed` or `stopped`.
    pub outcome: &'static str,
}

/// The label of counted tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TokenLabel {
    /// `input`, `output`, `cache_read` or `cache_write`.
    pub kind: &'static str,
}

/// All counters. Any thread may change them.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Open WebSockets, and those whose handshake is under way.
    pub connections: Gauge,
    /// Handshakes that were completed.
    pub handshakes: Counter,
    /// Connections that a newer one of the same session replaced.
    pub replaced: Counter,
    /// Handshakes that were refused, by reason.
    pub refused: Family<ReasonLabel, Counter>,
    /// HTTP requests that were refused before their handler ran, by reason.
    pub requests_refused: Family<ReasonLabel, Counter>,
    /// Frames from clients.
    pub frames_received: Counter,
    /// Frames to clients.
    pub frames_sent: Counter,
    /// Runs that were started.
    pub runs_started: Counter,
    /// Runs that ended, by outcome.
    pub runs_ended: Family<OutcomeLabel, Counter>,
    /// Runs that are under way.
    pub runs_active: Gauge,
    /// How long runs took.
    pub run_seconds: Histogram,
    /// Inputs that wait for the run before them.
    pub inputs_waiting: Gauge,
    /// How long inputs waited for the run before them.
    pub input_wait_seconds: Histogram,
    /// Answers of models.
    pub model_answers: Counter,
    /// Tokens of models, by kind.
    pub model_tokens: Family<TokenLabel, Counter>,
    /// The cost of models in dollars, as far as prices are known.
    pub model_cost: Counter<f64, AtomicU64>,
    /// Events that were appended to the log.
    pub events: Counter,
    /// Appends that the log has not finished.
    pub appends_waiting: Gauge,
    /// Appends that failed.
    pub appends_failed: Counter,
    /// How long appends took.
    pub append_seconds: Histogram,
    /// When the server was started, in seconds since 1970.
    pub started: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("parlor"),
            connections: Gauge::default(),
            handshakes: Counter::default(),
            replaced: Counter::default(),
            refused: Family::default(),
            requests_refused: Family::default(),
            frames_received: Counter::default(),
            frames_sent: Counter::default(),
            runs_started: Counter::default(),
            runs_ended: Family::default(),
            runs_active: Gauge::default(),
            run_seconds: Histogram::new(RUN_SECONDS),
            inputs_waiting: Gauge::default(),
            input_wait_seconds: Histogram::new(RUN_SECONDS),
            model_answers: Counter::default(),
            model_tokens: Family::default(),
            model_cost: Counter::default(),
            events: Counter::default(),
            appends_waiting: Gauge::default(),
            appends_failed: Counter::default(),
            append_seconds: Histogram::new(APPEND_SECONDS),
            started: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("connections", "Open WebSockets", self.connections.clone());
        all.register("handshakes", "Completed WebSocket handshakes", self.handshakes.clone());
        all.register("connections_replaced", "Connections replaced by a newer one", self.replaced.clone());
        all.register("handshakes_refused", "Refused WebSocket handshakes", self.refused.clone());
        all.register(
            "requests_refused",
            "HTTP requests that were turned away",
            self.requests_refused.clone(),
        );
        all.register("frames_received", "Frames from clients", self.frames_received.clone());
        all.register("frames_sent", "Frames to clients", self.frames_sent.clone());
        all.register("runs_started", "Runs that were started", self.runs_started.clone());
        all.register("runs_ended", "Runs that ended", self.runs_ended.clone());
        all.register("runs_active", "Runs under way", self.runs_active.clone());
        all.register("inputs_waiting", "Inputs that wait for a run before them", self.inputs_waiting.clone());
        let (name, help) = ("run", "How long runs take");
        all.register_with_unit(name, help, Unit::Seconds, self.run_seconds.clone());
        let (name, help) = ("input_wait", "How long inputs wait for a run before them");
        all.register_with_unit(name, help, Unit::Seconds, self.input_wait_seconds.clone());
        all.register("model_answers", "Answers of models", self.model_answers.clone());
        all.register("model_tokens", "Tokens of models", self.model_tokens.clone());
        all.register(
            "model_cost_dollars",
            "The cost of models where prices are known",
            self.model_cost.clone(),
        );
        all.register("log_events", "Events appended to the log", self.events.clone());
        all.register("log_appends_waiting", "Appends that are not finished", self.appends_waiting.clone());
        all.register("log_appends_failed", "Appends that failed", self.appends_failed.clone());
        let (name, help) = ("log_append", "How long appends to the log take");
        all.register_with_unit(name, help, Unit::Seconds, self.append_seconds.clone());
        let (name, help) = ("started", "When the server was started, since 1970");
        all.register_with_unit(name, help, Unit::Seconds, self.started.clone());
    }

    /// Counts what one answer of a model used.
    pub(crate) fn add_usage(&self, usage: Usage) {
        self.model_answers.inc();
        self.model_cost.inc_by(usage.cost_micros as f64 / 1_000_000.0);
        for (kind, tokens) in [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ] {
            self.model_tokens.get_or_create(&TokenLabel { kind }).inc_by(tokens);
        }
    }

    /// All counters as text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn counted_values_are_rendered() {
        let metrics = Metrics::default();
        metrics.connections.set(3);
        metrics.refused.get_or_create(&ReasonLabel { reason: "origin" }).inc();
        metrics.runs_ended.get_or_create(&OutcomeLabel { outcome: "completed" }).inc();
        metrics.append_seconds.observe(0.002);
        let text = metrics.render();
        for line in [
            "parlor_connections 3",
            "parlor_handshakes_refused_total{reason=\"origin\"} 1",
            "parlor_runs_ended_total{outcome=\"completed\"} 1",
            "parlor_log_append_seconds_bucket{le=\"0.003\"} 1",
            "parlor_log_append_seconds_count 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
        let metrics = Metrics::default();
        // A family without a value is not rendered.
        metrics.add_usage(Usage::default());
        for family in [&metrics.refused, &metrics.requests_refused] {
            family.get_or_create(&ReasonLabel { reason: "origin" }).inc();
        }
        metrics.runs_ended.get_or_create(&OutcomeLabel { outcome: "completed" }).inc();
        let text = metrics.render();
        for file in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(file);
            let example = std::fs::read_to_string(&path).unwrap();
            let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            let mut names: Vec<&str> = example
                .split(|letter: char| !is_name(letter))
                .filter(|word| word.starts_with("parlor_"))
                .collect();
            names.sort_unstable();
            names.dedup();
            assert!(names.len() > 3, "{file} names too few metrics: {names:?}");
            for name in names {
                let endings = ["_total", "_bucket", "_count", "_sum"];
                let family = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
                assert!(
                    text.contains(&format!("# TYPE {family} ")),
                    "{file} names {name}, which does not exist"
                );
            }
        }
    }
}
