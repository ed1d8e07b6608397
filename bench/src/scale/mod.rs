//! What many nodes need of one database: a model that is fed with measured costs, as a page with a plot.

mod costs;
mod model;
mod plot;

use std::path::Path;

use anyhow::Context;

use self::costs::Costs;
use self::model::{Load, Need};

/// The numbers of nodes in the table.
const NODES: [u32; 3] = [10, 100, 1000];

/// Measures, and writes the page and, beside it, its plot.
pub(crate) fn write(page: &Path) -> anyhow::Result<String> {
    let costs = costs::measure(Path::new(crate::DATABASE_FOLDER))?;
    let picture = page.with_extension("svg");
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(&picture, &plot::svg(&costs))?;
    let text = text(&costs);
    write(page, &text)?;
    Ok(text)
}

fn text(costs: &Costs) -> String {
    let load = Load::TYPICAL;
    let mut text = format!(
        "# What many nodes need of one database\n\n\
         Written by `make scale`, from costs that it measured on this machine ({} cores). The model adds \
         them up; it was not run with 1,000 nodes.\n\n\
         ![cores of the database by the number of nodes](scale.svg)\n\n\
         ## Measured costs\n\n\
         | of the database's processors | |\n|---|---|\n\
         | an append of one event that shares its commit with those of 64 sessions | {:.0} µs |\n\
         | an append of one event in a commit of its own | {:.0} µs |\n\
         | the same for each further node that listens | {:.1} µs |\n\
         | an idle node, for each second: heartbeat, search for sessions that were left behind, shared token | {:.0} µs |\n\n\
         | other | |\n|---|---|\n\
         | processor time of a node for an event that shares its commit | {:.0} µs |\n\
         | write-ahead log for an event | {:.0} bytes |\n\
         | memory of the database for an idle connection | {:.1} MiB |\n\n",
        std::thread::available_parallelism().map_or(1, usize::from),
        costs.grouped_micros,
        costs.single_micros,
        costs.listener_micros,
        costs.idle_micros,
        costs.node_micros,
        costs.wal_bytes,
        costs.connection_mib,
    );
    text += &format!(
        "## The load\n\n\
         A node has {} active runs, and each writes {} events a second. A node commits at most once per {} ms, because what \
         waits during a commit shares the next one. Each node has {} connections.\n\n\
         | nodes | active runs | events/s | cores for events | for notifications | for idle nodes | cores in all | \
         log | connections | their memory |\n|---|---|---|---|---|---|---|---|---|---|\n",
        load.runs_per_node,
        load.events_per_run,
        1000.0 / load.max_commits_per_node,
        load.connections_per_node,
    );
    for nodes in NODES {
        let need = Need::of(nodes, &load, costs);
        text += &format!(
            "| {nodes} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | **{:.2}** | {:.1} MiB/s | {:.0} | {:.1} GiB |\n",
            need.runs,
            need.events,
            need.event_cores,
            need.notification_cores,
            need.idle_cores,
            need.cores(),
            need.wal_mib,
            need.connections,
            need.memory_gib,
        );
    }
    text += "\n## The first limit\n\n| limit of a large database server | reached at |\n|---|---|\n";
    let limits = model::limits(&load, costs);
    for (name, nodes) in &limits {
        text += &format!("| {name} | {nodes} nodes |\n");
    }
    let first = limits.iter().min_by_key(|(_, nodes)| *nodes);
    if let Some((name, nodes)) = first {
        text += &format!(
            "\nThe first one is: {name}. Up to {nodes} nodes with {} active runs each can share a database; beyond that, shard.\n\n\
             Each commit wakes the listener of every node, so the work of notifications grows with the square of the number of \
             nodes, and everything else grows with the number.\n\n\
             ## Sharding by workspace\n\n\
             A session belongs to one workspace for ever, is opened only by nodes of that workspace, and no session refers to \
             another. So a workspace, or some of them, can have a database of its own: give the nodes of each group the `[log] url` \
             of their database, and put a proxy in front that chooses the group by the host name or the path. `parlor log copy` \
             moves a group's sessions. What is not shared between databases: the list of sessions, usage, the token, and the \
             content of attached files.\n\n\
             | nodes | databases | cores of each |\n|---|---|---|\n",
            load.runs_per_node
        );
        for nodes_in_all in NODES {
            let databases = nodes_in_all.div_ceil((*nodes).max(1));
            let each = Need::of(nodes_in_all.div_ceil(databases), &load, costs);
            text += &format!("| {nodes_in_all} | {databases} | {:.2} |\n", each.cores());
        }
    }
    text
}
