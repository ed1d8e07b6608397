//! Ends the runs of subagents.

use parlor_model::{SubagentResult, TurnError};
use parlor_vocab::{RunEnding, RunEvent, Timestamp};

use super::RunDriver;

impl RunDriver {
    /// Ends a subagent's run, and returns its result for the run that delegated to it.
    pub(super) async fn end_subagent_run(
        &mut self,
        ended: Result<(), TurnError>,
        started_at: Timestamp,
    ) -> Result<SubagentResult, TurnError> {
        let duration_ms = self.since(started_at);
        let failure = match ended {
            Ok(()) => {
                self.end_step().await?;
                None
            }
            Err(TurnError::Failed(failure)) => Some(failure),
            Err(TurnError::Stopped) => return Err(TurnError::Stopped),
        };
        let ending = match &failure {
            None => RunEnding::Completed { message: self.last_message.clone() },
            Some(failure) => RunEnding::Failed(failure.clone()),
        };
        self.record(vec![RunEvent::Ended { ending, duration_ms }]).await?;
        Ok(failure.map_or_else(|| Ok(self.last_text.clone()), Err))
    }
}
