//! Creates the tables, and migrates them to the newest format.
//!
//! A migration only expands the schema: nodes of an older version go on working beside nodes of a newer one.

use super::connect::Connection;
use super::db_error::DbError;
use crate::LogError;

/// The migration to each format from the one before. A released migration never changes.
const MIGRATIONS: &[&str] = &[
    include_str!("format_1.sql"),
    include_str!("format_2_media.sql"),
    include_str!("format_3_nodes.sql"),
    include_str!("format_4_snapshots.sql"),
    include_str!("format_5_rows.sql"),
];

/// The advisory lock that a migrating process has; any fixed number.
const MIGRATION_LOCK: i64 = 0x7061_726c_6f72;

/// Runs the missing migrations in one transaction. Fails with `Newer` if a newer parlor migrated the tables.
pub(super) async fn migrate(connection: &mut Connection) -> Result<Result<(), LogError>, DbError> {
    migrate_with(connection, MIGRATIONS).await
}

async fn migrate_with(
    connection: &mut Connection,
    migrations: &[&str],
) -> Result<Result<(), LogError>, DbError> {
    let known = migrations.len() as i64;
    // Most processes find a current format. They need neither the lock nor the right to create tables.
    let found = version(connection).await?;
    if found == known {
        return Ok(Ok(()));
    }
    if found > known {
        return Ok(Err(LogError::Newer { found, known }));
    }
    let transaction = connection.client_mut().transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await?;
    transaction.batch_execute("CREATE TABLE IF NOT EXISTS schema_version (version bigint NOT NULL)").await?;
    // Again, because another process may have migrated while this one waited for the lock.
    let rows = transaction.query("SELECT version FROM schema_version", &[]).await?;
    let found: i64 = rows.first().map_or(0, |row| row.get(0));
    if found > known {
        return Ok(Err(LogError::Newer { found, known }));
    }
    for migration in migrations.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.batch_execute(migration).await?;
    }
    transaction.batch_execute("DELETE FROM schema_version").await?;
    transaction.execute("INSERT INTO schema_version VALUES ($1)", &[&known]).await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

/// The format of the tables; 0 if there are none.
async fn version(connection: &mut Connection) -> Result<i64, DbError> {
    let rows = connection.query("SELECT to_regclass('schema_version') IS NOT NULL", &[]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let rows = connection.query("SELECT version FROM schema_version", &[]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

#[cfg(test)]
mod tests {
    use super::super::connect::Connector;
    use super::super::test_server::TestServer;
    use super::*;

    const TWO_MIGRATIONS: &[&str] =
        &["CREATE TABLE a (x bigint)", "CREATE TABLE b (x bigint); INSERT INTO b SELECT x FROM a"];

    async fn connector() -> Connector {
        let server = TestServer::shared();
        Connector::new(&server.url(&server.new_database().await), None).unwrap()
    }

    async fn rows(connection: &mut Connection, sql: &'static str) -> Vec<i64> {
        connection.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    #[tokio::test]
    async fn an_older_format_gets_only_the_missing_migrations() {
        let mut connection = connector().await.connect().await.unwrap();
        migrate_with(&mut connection, &TWO_MIGRATIONS[..1]).await.unwrap().unwrap();
        rows(&mut connection, "INSERT INTO a VALUES (7) RETURNING x").await;
        migrate_with(&mut connection, TWO_MIGRATIONS).await.unwrap().unwrap();
        migrate_with(&mut connection, TWO_MIGRATIONS).await.unwrap().unwrap();
        assert_eq!(rows(&mut connection, "SELECT x FROM b").await, [7]);
        assert_eq!(version(&mut connection).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_failed_migration_leaves_the_database_unchanged() {
        let mut connection = connector().await.connect().await.unwrap();
        let migrations = [TWO_MIGRATIONS[0], "CREATE TABLE c (x bigint)", "nonsense"];
        assert!(migrate_with(&mut connection, &migrations).await.is_err());
        assert_eq!(version(&mut connection).await.unwrap(), 0);
        assert!(rows(&mut connection, "SELECT 1::bigint FROM pg_class WHERE relname = 'a'").await.is_empty());
    }

    #[tokio::test]
    async fn a_newer_format_is_refused() {
        let mut connection = connector().await.connect().await.unwrap();
        migrate_with(&mut connection, TWO_MIGRATIONS).await.unwrap().unwrap();
        let error = migrate_with(&mut connection, &TWO_MIGRATIONS[..1]).await.unwrap().unwrap_err();
        assert!(matches!(error, LogError::Newer { found: 2, known: 1 }));
    }

    #[tokio::test]
    async fn many_processes_can_migrate_at_once() {
        let connector = connector().await;
        let mut connections = Vec::new();
        for _ in 0..8 {
            connections.push(connector.connect().await.unwrap());
        }
        let migrations = connections.iter_mut().map(|connection| migrate_with(connection, TWO_MIGRATIONS));
        for migrated in futures_util::future::join_all(migrations).await {
            migrated.unwrap().unwrap();
        }
        assert_eq!(version(&mut connections[0]).await.unwrap(), 2);
    }
}
