//! Which stored files an event speaks of.

use parlor_vocab::{Media, MediaId, MessageEvent, RunEvent, SessionEvent};

/// The ids of all files that came along with `event`. One can be named twice.
pub(crate) fn media_of(event: &SessionEvent) -> impl Iterator<Item = &MediaId> {
    let media: &[Media] = match event {
        SessionEvent::Queued(queued) => &queued.input.media,
        SessionEvent::Compacted { summary: message, .. } | SessionEvent::MessageAdded(message) => {
            &message.media
        }
        SessionEvent::Run { event, .. } => of_run(event),
        SessionEvent::Created(_)
        | SessionEvent::Renamed { .. }
        | SessionEvent::AgentChosen(_)
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared => &[],
    };
    media.iter().map(|media| &media.id)
}

fn of_run(event: &RunEvent) -> &[Media] {
    match event {
        RunEvent::Started { input, .. } | RunEvent::Steered { input, .. } => &input.media,
        RunEvent::Message(MessageEvent::Completed { media, .. }) => media,
        RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Step(_)
        | RunEvent::Tool(_)
        | RunEvent::Subagent(_)
        | RunEvent::ErrorRaised { .. }
        | RunEvent::UsageAdded { .. }
        | RunEvent::Ended { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{encode, samples};

    #[test]
    fn every_event_that_is_stored_with_media_is_known_to_speak_of_it() {
        let mut with = 0;
        for event in samples::all() {
            let stored = encode(&event).body.contains("\"media\":[");
            let ids: Vec<&str> = media_of(&event).map(MediaId::as_str).collect();
            assert_eq!(ids, if stored { vec!["ab"] } else { vec![] }, "{event:?}");
            with += usize::from(stored);
        }
        assert_eq!(with, 6);
    }
}
