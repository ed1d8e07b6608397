//! What several doors need of a session's history.

use parlor_vocab::{HistoryItem, MediaId};

/// The ids of all attached files in `history`, each once.
pub(crate) fn media_ids(history: &[HistoryItem]) -> Vec<MediaId> {
    let mut ids: Vec<MediaId> = Vec::new();
    for item in history {
        if let HistoryItem::Message(message) = item {
            for media in &message.media {
                if !ids.contains(&media.id) {
                    ids.push(media.id.clone());
                }
            }
        }
    }
    ids
}
