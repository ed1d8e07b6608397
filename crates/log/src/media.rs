//! The stored files that an event refers to.

use parlor_vocab::{Media, MediaId, MessageEvent, RunEvent, SessionEvent, ToolEvent};

/// The ids of all files that `event` refers to. An id may occur twice.
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
        | SessionEvent::ModeChosen { .. }
        | SessionEvent::Unqueued { .. }
        | SessionEvent::Cleared => &[],
    };
    media.iter().map(|media| &media.id)
}

fn of_run(event: &RunEvent) -> &[Media] {
    match event {
        RunEvent::Started { input, .. } | RunEvent::Steered { input, .. } => &input.media,
        RunEvent::Message(MessageEvent::Completed { media, .. }) => media,
        RunEvent::Tool(ToolEvent::Completed { details: Some(details), .. }) => &details.images,
        RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Step(_)
        | RunEvent::Tool(_)
        | RunEvent::Question(_)
        | RunEvent::Subagent(_)
        | RunEvent::ErrorRaised { .. }
        | RunEvent::UsageAdded { .. }
        | RunEvent::Ended { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{encode_json, samples};

    #[test]
    fn media_of_returns_the_media_of_every_stored_event() {
        let mut events_with_media = 0;
        for event in samples::all() {
            let stored = encode_json(&event).contains("\"media\":[");
            let ids: Vec<&str> = media_of(&event).map(MediaId::as_str).collect();
            assert_eq!(ids, if stored { vec!["ab"] } else { vec![] }, "{event:?}");
            events_with_media += usize::from(stored);
        }
        assert_eq!(events_with_media, 7);
    }
}
