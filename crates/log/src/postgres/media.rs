//! The content of attached files, in pieces. See [`SharedMedia`].
//!
//! A file is stored by one statement, so that there are no unfinished ones. Its pieces are small, because the server and the
//! reader hold a whole piece in memory.

use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::MediaId;
use tokio_postgres::Row;

use super::{MAX_APPEND_BYTES, PostgresLog};
use crate::LogError;
use crate::shared_media::{MediaVersion, SharedMedia, SweptMedia};

/// The size of a piece in bytes. The last one of a file may be smaller.
pub const MEDIA_PIECE_BYTES: usize = 256 << 10;

/// The advisory lock of the process that sweeps; any fixed number.
const SWEEP_LOCK: i64 = 0x7061_726c_7377;

/// The file comes first, which locks it: a sweep does the same.
const STORE: &str = "WITH
    file AS (
        INSERT INTO media_files (id, size, renewed) VALUES ($1, $2, clock_timestamp())
        ON CONFLICT (id) DO UPDATE SET size = excluded.size, renewed = excluded.renewed
        RETURNING id, renewed
    ),
    surplus AS (DELETE FROM media_pieces AS p USING file AS f WHERE p.id = f.id AND p.number > cardinality($3::bytea[])),
    pieces AS (
        INSERT INTO media_pieces (id, number, content)
        SELECT f.id, p.number, p.content FROM file AS f, unnest($3::bytea[]) WITH ORDINALITY AS p (content, number)
        ON CONFLICT (id, number) DO UPDATE SET content = excluded.content
    )
    SELECT (extract(epoch FROM renewed) * 1000000)::bigint FROM file";

const RENEW: &str = "UPDATE media_files SET renewed = clock_timestamp() WHERE id = $1 RETURNING size";

/// The server computes the hash, so that the content need not be transferred.
const RENEW_INTACT: &str = "UPDATE media_files AS f SET renewed = clock_timestamp()
    WHERE f.id = $1 AND $1 = (
        SELECT convert_to(encode(sha256(coalesce(string_agg(p.content, ''::bytea ORDER BY p.number), '')), 'hex'), 'UTF8')
        FROM media_pieces AS p WHERE p.id = $1)
    RETURNING f.size";

const SIZE: &str = "SELECT size FROM media_files WHERE id = $1";

const PIECE: &str = "SELECT content FROM media_pieces WHERE id = $1 AND number = $2";

const REMOVE_UNCHANGED: &str = "WITH
    file AS (
        DELETE FROM media_files AS f WHERE f.id = $1 AND (extract(epoch FROM renewed) * 1000000)::bigint = $2
            AND NOT EXISTS (SELECT FROM media AS m WHERE m.id = f.id)
        RETURNING f.id
    )
    DELETE FROM media_pieces AS p USING file AS f WHERE p.id = f.id";

/// A file that is renewed while this waits for its lock is compared again, and stays.
const SWEEP: &str = "WITH
    lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($1) AS is_ours),
    old AS MATERIALIZED (
        SELECT f.id, f.size FROM media_files AS f
        WHERE (SELECT is_ours FROM lock) AND f.renewed < clock_timestamp() - make_interval(secs => $2)
            AND NOT EXISTS (SELECT FROM media AS m WHERE m.id = f.id)
        FOR UPDATE OF f
    ),
    files AS (DELETE FROM media_files AS f USING old AS o WHERE f.id = o.id AND NOT $3),
    pieces AS (DELETE FROM media_pieces AS p USING old AS o WHERE p.id = o.id AND NOT $3)
    SELECT count(*), coalesce(sum(size), 0)::bigint FROM old";

#[async_trait]
impl SharedMedia for PostgresLog {
    async fn store(&self, id: &MediaId, content: &[u8]) -> Result<MediaVersion, LogError> {
        if content.len() > MAX_APPEND_BYTES {
            let text =
                format!("a file of {} bytes is too large; the limit is {MAX_APPEND_BYTES}", content.len());
            return Err(LogError::Database {
                store: self.shared.connector.store().to_owned(),
                source: text.into(),
            });
        }
        let pieces: Vec<&[u8]> = content.chunks(MEDIA_PIECE_BYTES).collect();
        let (name, size) = (id.as_str().as_bytes(), content.len() as i64);
        let rows = self.shared.read(STORE, &[&name, &size, &pieces]).await?;
        Ok(MediaVersion(self.number(rows.first(), 0)?.unwrap_or_default()))
    }

    async fn renew_intact(&self, id: &MediaId) -> Result<bool, LogError> {
        Ok(!self.shared.read(RENEW_INTACT, &[&id.as_str().as_bytes()]).await?.is_empty())
    }

    async fn renew(&self, id: &MediaId) -> Result<bool, LogError> {
        Ok(!self.shared.read(RENEW, &[&id.as_str().as_bytes()]).await?.is_empty())
    }

    async fn file_size(&self, id: &MediaId) -> Result<Option<u64>, LogError> {
        let rows = self.shared.read(SIZE, &[&id.as_str().as_bytes()]).await?;
        Ok(self.number(rows.first(), 0)?.map(|size| size as u64))
    }

    async fn piece(&self, id: &MediaId, number: u64) -> Result<Option<Vec<u8>>, LogError> {
        let number = i64::try_from(number).unwrap_or(i64::MAX - 1) + 1;
        let rows = self.shared.read(PIECE, &[&id.as_str().as_bytes(), &number]).await?;
        self.shared.stored(rows.first().map(|row| row.try_get(0)).transpose().map_err(Into::into))
    }

    async fn remove_unchanged(&self, id: &MediaId, version: MediaVersion) -> Result<(), LogError> {
        self.shared.read(REMOVE_UNCHANGED, &[&id.as_str().as_bytes(), &version.0]).await.map(|_| ())
    }

    async fn sweep(&self, grace: Duration, dry_run: bool) -> Result<SweptMedia, LogError> {
        let rows = self.shared.read(SWEEP, &[&SWEEP_LOCK, &grace.as_secs_f64(), &dry_run]).await?;
        let number = |column| Ok(self.number(rows.first(), column)?.unwrap_or_default() as u64);
        Ok(SweptMedia { files: number(0)?, bytes: number(1)? })
    }
}

impl PostgresLog {
    fn number(&self, row: Option<&Row>, column: usize) -> Result<Option<i64>, LogError> {
        self.shared.stored(row.map(|row| row.try_get(column)).transpose().map_err(Into::into))
    }
}
