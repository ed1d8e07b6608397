//! The connections for reading. They are opened when they are needed, and replaced when they break.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Shared;
use super::connect::Connection;
use super::db_error::{DbError, Failure, classify};
use crate::LogError;

/// The number of connections that can read at the same time.
pub const READ_CONNECTIONS: usize = 4;

/// The pool of reading connections.
pub(super) struct Readers {
    /// With the number of reconnects of the writer and the heartbeat before each was opened.
    idle: Mutex<Vec<(u64, Connection)>>,
    permits: Semaphore,
}

impl Default for Readers {
    fn default() -> Self {
        Self { idle: Mutex::default(), permits: Semaphore::new(READ_CONNECTIONS) }
    }
}

impl Readers {
    /// Closes the idle connections, and refuses further reads.
    pub(super) fn close(&self) {
        self.permits.close();
        self.take_all();
    }

    /// Takes a connection that was opened after the last of so many reconnects. Closes older ones.
    fn take(&self, reconnects: u64) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(opened, connection)| *opened == reconnects && !connection.is_closed());
        idle.pop().map(|(_, connection)| connection)
    }

    fn take_all(&self) -> Vec<(u64, Connection)> {
        std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, reconnects: u64, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((reconnects, connection));
    }
}

impl Shared {
    /// Runs a statement on a free connection. It may run twice, if the connection breaks.
    pub(super) async fn read(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, LogError> {
        self.read_with_warning(sql, params).await.map(|(rows, _)| rows)
    }

    /// Like [`read`](Self::read). Also returns whether the server warned that it did not wait for its standby.
    pub(super) async fn read_with_warning(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<(Vec<Row>, bool), LogError> {
        let _permit = self.readers.permits.acquire().await.map_err(|_| LogError::Closed)?;
        match self.try_read(sql, params).await {
            Err(error) if classify(&error) != Failure::Refused => {
                // A failover breaks all connections at once.
                self.readers.take_all();
                self.try_read(sql, params).await.map_err(|error| self.log_error(error))
            }
            read => read.map_err(|error| self.log_error(error)),
        }
    }

    async fn try_read(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<(Vec<Row>, bool), DbError> {
        // If the caller drops the future, the connection is closed and not used again.
        let reconnects = *self.reconnects.borrow();
        let mut connection = match self.readers.take(reconnects) {
            Some(connection) => connection,
            None => self.connector.connect().await?,
        };
        let rows = connection.query(sql, params).await?;
        let warned = connection.take_sync_wait_cancelled();
        self.readers.put_back(reconnects, connection);
        Ok((rows, warned))
    }
}
