//! Copies the content of attached files, and checks it against the ids, which are hashes.

use parlor_engine::MediaError;
use parlor_engine::media::read_shared;
use parlor_vocab::MediaId;

use super::endpoint::{EndpointMedia, OpenEndpoint};
use super::progress::ProgressBar;
use super::report::Reporter;

/// What became of the attached files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MediaReport {
    /// How many files the events of the source refer to.
    pub(super) files: u64,
    /// How many of them the target has now, with the right content.
    pub(super) compared: u64,
    /// Those that the source does not have either.
    pub(super) missing: u64,
    /// Those that are damaged in the source.
    pub(super) damaged: u64,
}

/// Copies all files that events of the source refer to. The target keeps a file that it has, and replaces a damaged one.
pub(super) async fn copy(
    source: &OpenEndpoint,
    target: &OpenEndpoint,
    bar: &mut ProgressBar,
    reporter: &mut Reporter<'_>,
) -> anyhow::Result<MediaReport> {
    let ids = source.log.referenced_media().await?;
    let mut report = MediaReport { files: ids.len() as u64, ..MediaReport::default() };
    bar.begin("files", report.files);
    for id in &ids {
        match source.media.read(id).await {
            Ok(content) => {
                target.media.store(id, content).await?;
                report.compared += 1;
            }
            Err(error @ MediaError::Missing(_)) => {
                report.missing += 1;
                bar.clear();
                reporter.file(id, &error);
            }
            Err(error @ (MediaError::Corrupt { .. } | MediaError::SharedCorrupt(_))) => {
                report.damaged += 1;
                bar.clear();
                reporter.file(id, &error);
            }
            Err(error) => return Err(error.into()),
        }
        bar.advance(1);
    }
    Ok(report)
}

impl EndpointMedia {
    /// The content of a file, which matches its id.
    async fn read(&self, id: &MediaId) -> Result<Vec<u8>, MediaError> {
        match self {
            Self::Folder(store) => store.read(id, u64::MAX).await,
            Self::Database(shared) => read_shared(&**shared, id, u64::MAX).await,
        }
    }

    async fn store(&self, id: &MediaId, content: Vec<u8>) -> Result<(), MediaError> {
        match self {
            // The name is in the events.
            Self::Folder(store) => store.put("", content, u64::MAX).await.map(|_| ()),
            Self::Database(shared) => {
                if !shared.renew_intact(id).await? {
                    shared.store(id, &content).await?;
                }
                Ok(())
            }
        }
    }
}
