//! Small values that all nodes of a log share: the key of the peer door on loopback, and the token of the supr door.

use super::PostgresLog;
use crate::LogError;

const READ: &str = "SELECT value FROM shared_values WHERE name = $1";

/// Returns the value that counts: the first one.
const CREATE: &str = "WITH created AS (
        INSERT INTO shared_values (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING value
    )
    SELECT value FROM created UNION ALL SELECT value FROM shared_values WHERE name = $1 LIMIT 1";

/// Returns a row if the value was the expected one.
const REPLACE: &str = "UPDATE shared_values SET value = $3
    WHERE name = $1 AND (value = $2 OR value = $3) RETURNING name";

impl PostgresLog {
    /// A value that the nodes share. `None` if nobody has created it.
    pub async fn shared_value(&self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        let rows = self.shared.read(READ, &[&name]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Creates a value that the nodes share, and returns the one that counts: that of the first node to create it.
    pub async fn create_shared_value(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, LogError> {
        loop {
            // A statement does not see a row that another one commits while it runs.
            if let Some(row) = self.shared.read(CREATE, &[&name, &value]).await?.first() {
                return Ok(row.get(0));
            }
        }
    }

    /// Replaces a value that the nodes share. Returns false if it is no longer `expected`. May be repeated.
    pub async fn replace_shared_value(
        &self,
        name: &str,
        expected: &[u8],
        new: &[u8],
    ) -> Result<bool, LogError> {
        let rows = self.shared.read(REPLACE, &[&name, &expected, &new]).await?;
        Ok(!rows.is_empty())
    }
}
